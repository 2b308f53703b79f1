"""A real engine for tests and for trying out loops: exact, deterministic, numpy only, milliseconds a step.

The policy is a softmax table (base logits plus a trained delta), the gradient of the clipped GRPO
loss is exact, the optimizer is Adam. Nothing is mocked: log-ratios, clipping, checkpoints, versions
and the probe behave as those of an engine with a language model behind it.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strop.engine import Adapter, EngineInfo, Objective, Published, Scored
from strop.engines.fake_sampler import FakeSampler
from strop.engines.tabular import (
    Clipped,
    Floats,
    clipped_loss,
    entropy,
    log_softmax,
    next_logprobs,
    read_out,
    row_gradient,
)
from strop.errors import EngineError, InputError, ModelError, PublishError
from strop.seeds import generator
from strop.trajectory.tokens import Row

SCHEMA = 1
PROBE_BOUND = 1e-12
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeConfig:
    """`vocab` tokens, of which 0 ends a reply; `order` tokens of context; base logits are drawn from
    N(0, `base_scale`²) under `seed`; Adam at `learning_rate`; ratios are clipped at 1 ± `clip`."""

    vocab: int = 16
    order: int = 2
    base_scale: float = 0.5
    learning_rate: float = 0.1
    clip: float = 0.2
    seed: int = 0


class FakeEngine:
    """Implements `strop.engine.Engine`. `sampler` serves the published table to a gateway.

    `base_url` is what the caller says it is: the engine starts no server.
    """

    def __init__(self, config: FakeConfig | None = None, *, base_url: str = "http://fake.invalid/v1") -> None:
        self.config = config or FakeConfig()
        shape = ((self.config.vocab + 1) ** self.config.order, self.config.vocab)
        self._base = self.config.base_scale * generator(self.config.seed, "fake").standard_normal(shape)
        self.delta: Floats = np.zeros(shape)
        self._moments: Floats = np.zeros((2, *shape))
        self._steps = 0
        self._version = 0
        self._gradient: Floats = np.zeros(shape)
        self._tokens = 0
        self._base_url = base_url
        self._open = True
        self.sampler = FakeSampler(order=self.config.order)
        self.sampler.serve("fake@0", 0, self._logits("policy"), self._base)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            model="fake",
            device="cpu",
            dtype="float64",
            vocab_size=self.config.vocab,
            policy_version=self._version,
        )

    @property
    def base_url(self) -> str:
        return self._base_url

    @property
    def gradient(self) -> Floats:
        """Gradient of the token-mean loss over what was accumulated since the last step, [C, V]."""
        return self._gradient / max(self._tokens, 1)

    def score(self, rows: Sequence[Row], adapter: Adapter) -> list[Scored]:
        self._check_open()
        logits = self._logits(adapter)
        return [read_out(next_logprobs(logits, row, self.config.order)[0], row.ids[row.mask]) for row in rows]

    def logprobs(self, rows: Sequence[Row], adapter: Adapter) -> list[NDArray[np.float64]]:
        return [scored.logprobs for scored in self.score(rows, adapter)]

    def accumulate(
        self, rows: Sequence[Row], advantages: Sequence[float], objective: Objective = "policy"
    ) -> Mapping[str, float]:
        """See `Engine`. `loss` is the token-mean over this call; the gradient's, over all calls of a step."""
        self._check_open()
        if len(rows) != len(advantages):
            raise InputError(f"{len(rows)} rows but {len(advantages)} advantages; one is needed for each row")
        logits = self._logits("policy")
        learned = [
            self._accumulate_row(logits, row, advantage, objective)
            for row, advantage in zip(rows, advantages, strict=True)
            if row.mask.any()
        ]
        return _metrics(learned, objective)

    def step(self) -> Mapping[str, float]:
        """Adam (arXiv 1412.6980). A gradient of exactly zero moves nothing, momentum included."""
        self._check_open()
        if not self._tokens:
            raise EngineError("step: no token was accumulated, there is no gradient to apply")
        gradient = self.gradient
        self._gradient, self._tokens = np.zeros_like(gradient), 0
        norm = float(np.sqrt(np.square(gradient).sum()))
        if norm > 0:
            self._steps += 1
            self._moments = np.stack(
                [
                    _BETA1 * self._moments[0] + (1 - _BETA1) * gradient,
                    _BETA2 * self._moments[1] + (1 - _BETA2) * gradient**2,
                ]
            )
            mean = self._moments[0] / (1 - _BETA1**self._steps)
            square = self._moments[1] / (1 - _BETA2**self._steps)
            self.delta = self.delta - self.config.learning_rate * mean / (np.sqrt(square) + _EPSILON)
        return {"grad_norm": norm, "learning_rate": self.config.learning_rate}

    def publish(self) -> Published:
        self._check_open()
        began = time.perf_counter()
        version = self._version + 1
        name = f"fake@{version}"
        self.sampler.serve(name, version, self._logits("policy").copy(), self._base)
        gap = self._probe()
        if not gap <= PROBE_BOUND:
            raise PublishError(f"{name}: served log-probs are {gap:.3g} nats from the learner's")
        self._version = version
        return Published(
            version=version,
            name=name,
            probe_gap=gap,
            probe_bound=PROBE_BOUND,
            seconds=time.perf_counter() - began,
        )

    def save(self, path: Path) -> None:
        self._check_open()
        np.save(path / "adapter.npy", self.delta)
        np.save(path / "optimizer.npy", self._moments)
        state = {"schema": SCHEMA, "steps": self._steps, "version": self._version}
        (path / "engine.json").write_text(json.dumps(state))

    def load(self, path: Path) -> None:
        self._check_open()
        try:
            state = json.loads((path / "engine.json").read_text())
            delta, moments = np.load(path / "adapter.npy"), np.load(path / "optimizer.npy")
            steps, version = int(state["steps"]), int(state["version"])
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{path}: not a checkpoint of the fake engine ({error})") from error
        if state.get("schema") != SCHEMA or delta.shape != self.delta.shape:
            raise ModelError(f"{path}: checkpoint of another schema or shape {delta.shape}")
        self.delta, self._moments, self._steps = delta, moments, steps
        self._version = max(self._version, version)
        self._gradient, self._tokens = np.zeros_like(delta), 0

    def close(self) -> None:
        self._open = False

    def _logits(self, adapter: Adapter) -> Floats:
        return self._base + self.delta if adapter == "policy" else self._base

    def _accumulate_row(
        self, logits: Floats, row: Row, advantage: float, objective: Objective
    ) -> tuple[Clipped, Floats]:
        """The loss of each sampled token, and the entropy of the distribution it was held against."""
        logprobs, where = next_logprobs(logits, row, self.config.order)
        tokens = row.ids[row.mask]
        new = np.take_along_axis(logprobs, tokens[:, None], axis=1)[:, 0]
        # Against itself the ratio is 1 and its gradient that of log π: supervised learning.
        old = new if objective == "supervised" else row.logprobs[row.mask]
        clipped = clipped_loss(new, old, advantage, self.config.clip)
        np.add.at(self._gradient, where, row_gradient(logprobs, tokens, clipped.slope, row.temperature))
        self._tokens += len(tokens)
        return clipped, entropy(logprobs)

    def _probe(self) -> float:
        served, mine = self.sampler.served_logits, self._logits("policy")
        return float(np.abs(log_softmax(served, 1.0) - log_softmax(mine, 1.0)).max())

    def _check_open(self) -> None:
        if not self._open:
            raise EngineError("the engine is closed")


def _metrics(learned: Sequence[tuple[Clipped, Floats]], objective: Objective) -> dict[str, float]:
    if not learned:
        return {"tokens": 0.0}
    loss = np.concatenate([row.loss for row, _ in learned])
    ratio = np.concatenate([row.ratio for row, _ in learned])
    sampled = {
        "ratio": float(ratio.mean()),
        "mismatch": float(np.abs(np.log(ratio)).mean()),
        "clip_share": float(np.concatenate([row.clipped for row, _ in learned]).mean()),
        "entropy": float(np.concatenate([entropy for _, entropy in learned]).mean()),
    }
    return {
        "tokens": float(len(loss)),
        **(sampled if objective == "policy" else {}),
        "loss": float(loss.mean()),
    }
