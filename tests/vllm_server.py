"""A real vLLM on a tiny model, started and watched by the engine that learns beside it."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heard import Heard
from local_model import make_row, write_model
from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.learner import LearnerSettings
from strop.engines.local.weights import LoraShape
from strop.engines.vllm.serving import serving
from strop.engines.vllm.settings import VllmSettings
from strop.inference.sampling import Sampled, SamplingParams
from strop.trajectory.tokens import Row

PYTHON = "STROP_VLLM_PYTHON"
LENGTH = 2048
START_S = 1200.0
PROMPT = (3, 9, 2)
ROWS = [make_row([*PROMPT, 7, 1, 30], [0, 0, 0, 1, 1, 1]), make_row([*PROMPT, 8, 8], [0, 0, 0, 1, 1])]


def tiny_model(folder: Path) -> Path:
    """Heads of 32 numbers are the smallest that vLLM computes on a processor."""
    return write_model(folder, hidden_size=128, max_position_embeddings=LENGTH)


def tiny_config(model: Path, max_length: int = LENGTH) -> LocalConfig:
    return LocalConfig(
        model=str(model),
        lora=LoraShape(rank=2, targets=["q_proj", "v_proj", "up_proj"]),
        learner=LearnerSettings(learning_rate=2e-2),
        dtype="float32",
        device="cpu",
        slots=4,
        max_length=max_length,
    )


class Supervised:
    """`engine` learns and publishes here while its vLLM answers; `heard` is told what happens to that."""

    def __init__(self, folder: Path) -> None:
        self.model = tiny_model(folder / "model")
        self.heard = Heard(START_S)
        settings = VllmSettings(python=Path(os.environ[PYTHON]), start_timeout_s=START_S)
        self.engine = LocalEngine(tiny_config(self.model), serving(settings))
        self.engine.listen(self.heard)

    @property
    def url(self) -> str:
        """Where the server is now."""
        return str(self.heard.of("server_up")[-1]["url"])

    def signal(self, number: int) -> None:
        """Send a signal to the server and all its children."""
        os.killpg(self.engine._serving._server._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def ask(self, model: str = "policy") -> Sampled:
        params = SamplingParams(max_tokens=8, temperature=0.0, top_logprobs=5)
        return asyncio.run(self.engine.sampler.sample(PROMPT, params, model=model))

    def train(self) -> None:
        """A step on rows that the policy might have sampled: enough for a version of its own."""
        self.engine.accumulate(sampled_now(self.engine, ROWS), [1.0, -1.0])
        self.engine.step()

    def held(self) -> list[str]:
        """What the server itself says that it serves."""
        return [model["id"] for model in self.engine._serving._control.models(self.url)]


def sampled_now(engine: LocalEngine, rows: Sequence[Row]) -> list[Row]:
    """The rows with the policy's own log-probs."""
    return [
        make_row(row.ids.tolist(), row.mask.tolist(), logprobs=np.asarray(values).tolist())
        for row, values in zip(rows, engine.logprobs(rows, "policy"), strict=True)
    ]
