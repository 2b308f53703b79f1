"""The engine for one machine: transformers and peft learn, the local sampler serves, all in one process."""

import asyncio
import json
import secrets
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from strop.engine import Adapter, EngineInfo, Objective, Published, Scored
from strop.engines.embedded import resolve_model
from strop.engines.local.in_process import InProcess
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.probe import (
    TOP,
    Probe,
    as_read,
    behind,
    candidates,
    from_json,
    probe_at,
    sharpest,
    to_json,
)
from strop.engines.local.proof import Answers, Proof, Top, proved
from strop.engines.local.slots import CacheShape
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import (
    DType,
    LoraShape,
    adapted,
    adapter_tensors,
    load_base,
    overwrite,
    pick_device,
    pick_dtype,
    read_adapter,
    save_adapter,
    set_reference,
)
from strop.engines.serving import Events, Ground, Hears, OpenServing, Told
from strop.errors import EngineError, InputError, ModelError, PublishError, ServerLost, in_one_line
from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.sampling import Sampler, SamplingParams
from strop.inference.server import RunningServer, serve
from strop.trajectory.tokens import Row

SCHEMA = 2
STATE = {"policy_version", "on_policy", "probe"}
PROBE_BOUND = {torch.float32: 1e-3, torch.bfloat16: 0.35}
POLICY = "policy"
ASKED_AGAIN = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """What to load and how to run it.

    `model`: "smollm2", a folder or a hub name; `adapter`: the warm start, which is then the
    reference (None: a fresh LoRA, so the reference is the bare model) unless `reference` names
    another adapter, or "base" for the bare model; `slots` conversations decode at once;
    `max_length` tokens a conversation may have; `api_key` is "random", or what clients must send,
    None for no key.
    """

    model: str = "smollm2"
    adapter: Path | None = None
    reference: Path | Literal["base"] | None = None
    lora: LoraShape = field(default_factory=LoraShape)
    learner: LearnerSettings = field(default_factory=LearnerSettings)
    dtype: DType = "auto"
    device: str = "auto"
    slots: int = 48
    max_length: int = 2048
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = "random"


class LocalEngine:
    """Implements `strop.engine.Engine`. `gateway` records what agents ask; `api_key` opens it."""

    def __init__(self, config: LocalConfig, open_serving: OpenServing = InProcess) -> None:
        self.config = config
        source = resolve_model(config.model)
        device = pick_device(config.device)
        self.tokenizer = HFTokenizer.load(source)
        self._base = load_base(source, pick_dtype(config.dtype, device), device)
        self._model = adapted(self._base, config.lora, config.adapter, config.seed)
        if config.reference is not None:
            set_reference(self._model, config.reference)
        self.learner = Learner(self._model, config.learner)
        self._events = Events()
        self._serving = open_serving(self._ground(source, device), self._events)
        key = secrets.token_urlsafe(18) if config.api_key == "random" else config.api_key
        self.api_key = key or "none"
        self.gateway = Gateway(
            self._serving.sampler,
            Chat(self.tokenizer),
            api_key=key,
            max_context=config.max_length,
            seed=config.seed,
        )
        self._server: RunningServer | None = None
        self._version = 0
        self._greeting = tuple(Chat(self.tokenizer).prompt([{"role": "user", "content": "Hello"}]))
        self._places = [behind(self._greeting)]
        self._fresh = False
        self._served: str | None = None
        try:
            self._server = serve(self.gateway.app, config.host, config.port)
            self.gateway.root = self._server.url
            self._serve_policy(0)
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            model=self.config.model,
            device=str(self.learner.device),
            dtype=str(self._base.dtype).removeprefix("torch."),
            vocab_size=int(self._base.config.vocab_size),
            policy_version=self._version,
            notes=tuple(note for note in (self.learner.note, *self._serving.notes) if note is not None),
        )

    @property
    def sampler(self) -> Sampler:
        """What answers the gateway."""
        return self._serving.sampler

    @property
    def base_url(self) -> str:
        return self.gateway.base_url

    def score(self, rows: Sequence[Row], adapter: Adapter) -> list[Scored]:
        return self._learner().score(rows, adapter)

    def logprobs(self, rows: Sequence[Row], adapter: Adapter) -> list[NDArray[np.float64]]:
        return [scored.logprobs for scored in self.score(rows, adapter)]

    def accumulate(
        self, rows: Sequence[Row], advantages: Sequence[float], objective: Objective = "policy"
    ) -> Mapping[str, float]:
        learner = self._learner()
        if len(rows) != len(advantages):
            raise InputError(f"{len(rows)} rows but {len(advantages)} advantages; one is needed for each row")
        metrics = learner.accumulate(rows, advantages, objective)
        if objective == "policy" and learner.on_policy and not self._fresh:
            self._look_at(candidates(rows, advantages, learner.found, self.config.max_length))
        return metrics

    def step(self) -> Mapping[str, float]:
        return self._learner().step()

    def publish(self) -> Published:
        """Fold the adapter into a copy, serve it under its own name, probe it, move traffic, retire the old.

        On a failed probe the new copy is dropped, the old one keeps serving, and PublishError says so.
        """
        learner = self._learner()
        published = self._serve_policy(self._version + 1)
        self._version, self._fresh = published.version, False
        learner.on_policy = True
        return published

    def serve_adapter(self, name: str, adapter: Path | None, slots: int | None = None) -> None:
        """Serve another adapter over the same base (None: the bare base) under a fixed name, e.g. a judge.

        Raises ModelError for an adapter that cannot be read, PublishError for one that is not what answers.
        """
        worn = None if adapter is None else adapted(self._base, self.config.lora, adapter, 0)
        self._serving.serve(name, 0, worn, Told(prompt=self._greeting, slots=slots))
        if worn is None or self._serving.base is None:
            return
        try:
            self._prove_worn(name, worn)
        except BaseException:
            self._serving.retire(name)
            raise

    def listen(self, hears: Hears) -> None:
        """Tell `hears` what happens to whoever serves, from the beginning on."""
        self._events.listen(hears)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return self.tokenizer.decode(ids)

    def save(self, path: Path) -> None:
        self._learner()
        save_adapter(self._model, path / "adapter")
        torch.save(self.learner.optimizer.state_dict(), path / "optimizer.pt")
        state = {
            "schema": SCHEMA,
            "policy_version": self._version,
            "on_policy": self.learner.on_policy,
            "probe": {"fresh": self._fresh, "rows": to_json(self._places)},
        }
        (path / "engine.json").write_text(json.dumps(state))

    def load(self, path: Path) -> None:
        """Continue from what `save` wrote. Versions never go back, as each has a name of its own.

        Raises ModelError for what is no checkpoint of this engine; nothing is changed then.
        """
        learner = self._learner()
        state, optimizer = _read_state(path)
        overwrite(adapter_tensors(self._model, POLICY), read_adapter(path / "adapter"), path / "adapter")
        learner.optimizer.load_state_dict(optimizer)
        learner.forget()
        learner.on_policy = state["on_policy"]
        self._version = max(self._version, state["policy_version"])
        self._places, self._fresh = from_json(state["probe"]["rows"]), state["probe"]["fresh"]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._serving.close()

    def _learner(self) -> Learner:
        if self._serving.closed:
            raise EngineError("the engine is closed")
        return self.learner

    def _serve_policy(self, version: int) -> Published:
        began = time.perf_counter()
        name = f"{POLICY}@{version}"
        probe, learner = self._pointed()
        self._serving.serve(name, version, self._model, Told(prompt=probe.prompt))
        try:
            proof = self._proof(name, probe, learner)
        except BaseException:
            self._serving.retire(name)
            raise
        self._serving.route(POLICY, name)
        if self._served is not None:
            self._serving.retire(self._served)
        self._served = name
        seconds = time.perf_counter() - began
        return Published(
            version=version,
            name=name,
            probe_gap=proof.gap,
            probe_bound=PROBE_BOUND[self._base.dtype],
            probe_separation=proof.separation,
            probe_base_separation=proof.base_separation,
            seconds=seconds,
        )

    def _ground(self, source: Path | str, device: str) -> Ground:
        return Ground(
            source=source,
            base=self._base,
            device=device,
            dtype=str(self._base.dtype).removeprefix("torch."),
            tokenizer=self.tokenizer,
            rank=int(self._model.peft_config[POLICY].r),
            slots=self.config.slots,
            max_length=self.config.max_length,
            bound=PROBE_BOUND[self._base.dtype],
            token_bytes=CacheShape.of(self._base).token_bytes,
        )

    def _look_at(self, found: Sequence[Row]) -> None:
        """Read these places before the step as `_pointed` will after it: their rounding is shared then."""
        if found:
            self._places, self._fresh = as_read(found, self.learner.hold(found).logprobs), True

    def _pointed(self) -> tuple[Probe, dict[int, float]]:
        """Where to ask, and what the learner says of every token there."""
        held = self.learner.hold(self._places)
        place = sharpest(self._places, held.logprobs)
        said = held.distribution(place.row, place.nth).tolist()
        fresh = self._fresh and not self.learner.on_policy
        return probe_at(self._places, place, fresh=fresh), dict(enumerate(said))

    def _proof(self, name: str, probe: Probe, learner: Mapping[int, float]) -> Proof:
        """Ask `name`, and what it could be mistaken for, at the probe, and hold it against the learner."""
        base = self._serving.base
        found = Answers(
            new=self._asked(name, probe),
            before=self._asked(self._served, probe) if self._served else None,
            base=self._asked(base, probe) if base else None,
        )
        return proved(name, found, learner, probe, PROBE_BOUND[self._base.dtype])

    def _prove_worn(self, name: str, worn: Any) -> None:
        """Hold a served adapter against the same adapter read here. Raises PublishError."""
        probe, base = Probe(prompt=self._greeting), self._serving.base
        found = Answers(new=self._asked(name, probe), base=self._asked(base, probe) if base else None)
        proved(name, found, _next_token(worn, probe.prompt), probe, PROBE_BOUND[self._base.dtype])

    def _asked(self, name: str, probe: Probe) -> Top:
        """The most likely tokens of a served version at a probe. A server that is lost is waited for."""
        params = SamplingParams(max_tokens=1, temperature=probe.temperature, top_logprobs=TOP)
        for _ in range(ASKED_AGAIN):
            with suppress(ServerLost):
                return _finish(self.sampler.sample(probe.prompt, params, model=name)).top[0]
            self._serving.wait()
        raise PublishError(f"{name}: the server was lost {ASKED_AGAIN} times while it was probed")


def _read_state(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """engine.json and the optimizer's state of a checkpoint. Raises ModelError."""
    try:
        state = json.loads((path / "engine.json").read_text(encoding="utf-8"))
        optimizer = torch.load(path / "optimizer.pt", weights_only=True)
    except Exception as error:  # a torn pickle raises whatever its bytes lead to
        raise ModelError(f"{path}: not a checkpoint of this engine: {in_one_line(error)}") from error
    if not isinstance(state, dict) or state.get("schema") != SCHEMA or not state.keys() >= STATE:
        raise ModelError(f"{path}: engine.json is of another schema than {SCHEMA}, which this strop reads")
    return state, optimizer


@torch.no_grad()
def _next_token(model: Any, prompt: Sequence[int]) -> dict[int, float]:
    """Log-prob of every token behind a prompt, by the model's own forward pass."""
    ids = torch.tensor([list(prompt)], device=model.device)
    with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=model.dtype == torch.bfloat16):
        logits = model(input_ids=ids, logits_to_keep=1).logits[0, -1]
    return dict(enumerate(torch.log_softmax(logits.float(), dim=-1).tolist()))


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not a loop runs in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
