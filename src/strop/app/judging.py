"""The judge of a run: an endpoint of the user's, or the embedded one, served beside the policy."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from strop.app.sources import ORDER_DESK
from strop.config import JudgeConfig, RunConfig
from strop.engines.opening import EmbeddedEngine
from strop.errors import ConfigError, ModelError
from strop.judge import Judge, JudgeSettings, Verdict
from strop.judge.rubric import default_rubric, read_rubric
from strop.judge.verdict import Failure, apply
from strop.seeds import generator
from strop.trajectory.model import Group

EMBEDDED = "judge"
EMBEDDED_SLOTS = 16
ADAPTER = "adapters/judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A judge and how it is asked. `sessions` is the engine's gateway where the judge is served by it.

    Asked through sessions, an embedded judge's verdicts are the same in every run.
    """

    judge: Judge
    engine: EmbeddedEngine | None
    seed: int

    async def judged(self, groups: Sequence[Group], part: str) -> tuple[list[Group], list[Verdict]]:
        """Every group with its scores, or reasons why not, and the verdicts. Order is kept.

        Raises Unreachable for a refused key or an unknown model.
        """
        keys = [f"judge/{part}/{group.group_id}" for group in groups]
        urls = dict(self.engine.gateway.open(keys)) if self.engine else {}
        tasks = [
            asyncio.ensure_future(self._one(group, key, urls))
            for group, key in zip(groups, keys, strict=True)
        ]
        try:
            verdicts = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for key in list(urls):
                self._leave(key, urls)
        return [apply(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)], verdicts

    async def _one(self, group: Group, key: str, urls: dict[str, str]) -> Verdict:
        rng = generator(self.seed, "judge", key)
        try:
            return await self.judge(group, rng=rng, session_url=urls.get(key))
        finally:
            # At once: the sampler waits for every session that may still ask.
            self._leave(key, urls)

    def _leave(self, key: str, urls: dict[str, str]) -> None:
        if self.engine is not None and urls.pop(key, None) is not None:
            self.engine.gateway.take(key)


def nobody_answered(verdicts: Sequence[Verdict]) -> bool:
    """Whether there is no verdict at all because the judge could not be reached."""
    return bool(verdicts) and all(v.failure in (Failure.TRANSPORT, Failure.TIMEOUT) for v in verdicts)


def bench(config: RunConfig, engine: EmbeddedEngine) -> Bench:
    """The judge the run file asks for; the embedded one is served by `engine` from now on."""
    rubric = _rubric(config)
    if config.judge.embedded:
        _serve_embedded(config.judge, engine)
        settings = _settings(config.judge, engine.base_url, engine.api_key, EMBEDDED, config.training.seed)
        return Bench(judge=Judge(settings, rubric), engine=engine, seed=config.training.seed)
    return Bench(
        judge=endpoint_judge(config.judge, rubric, config.training.seed),
        engine=None,
        seed=config.training.seed,
    )


def _serve_embedded(config: JudgeConfig, engine: EmbeddedEngine) -> None:
    try:
        engine.serve_adapter(EMBEDDED, config.adapter or shipped(ADAPTER), EMBEDDED_SLOTS)
    except ModelError as error:
        raise ConfigError(
            f"[judge] the embedded judge cannot be served over this model; give base_url and model of "
            f"another judge ({error})"
        ) from error


def endpoint_judge(config: JudgeConfig, rubric: str, seed: int) -> Judge:
    """A judge behind the endpoint that `config` names. Raises ConfigError where its key is not set."""
    key = os.environ.get(config.api_key_env)
    if not key:
        raise ConfigError(
            f"[judge] api_key_env: the environment has no {config.api_key_env}; set it to the judge's key"
        )
    assert config.base_url is not None
    assert config.model is not None
    return Judge(_settings(config, config.base_url, key, config.model, seed), rubric)


def shipped(name: str) -> Path:
    """A file or folder that comes with the demo."""
    return Path(str(files("strop.demo").joinpath(name)))


def _rubric(config: RunConfig) -> str:
    if config.judge.rubric is not None:
        return read_rubric(config.judge.rubric)
    if config.rollout.agent == ORDER_DESK:
        return shipped("rubric.md").read_text(encoding="utf-8")
    return default_rubric()


def _settings(config: JudgeConfig, base_url: str, key: str, model: str, seed: int) -> JudgeSettings:
    # All groups of an embedded judge must be able to ask at once: its sampler waits for each of them.
    concurrency = 1024 if config.embedded else config.concurrency
    priced = config.price_in > 0 or config.price_out > 0
    return JudgeSettings(
        base_url=base_url,
        api_key=key,
        model=model,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        timeout_s=config.timeout_s,
        concurrency=concurrency,
        seed=seed,
        price_in=config.price_in if priced else (0.0 if config.embedded else None),
        price_out=config.price_out if priced else (0.0 if config.embedded else None),
    )
