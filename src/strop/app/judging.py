"""The judge of a run: an endpoint of the user's, or the embedded one, served beside the policy."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from strop.app.sources import ORDER_DESK
from strop.app.waits import Waits
from strop.config import JudgeConfig, RunConfig
from strop.engines.embedded import cache_root
from strop.engines.opening import EmbeddedEngine
from strop.errors import ConfigError, ModelError
from strop.judge import Endpoint, EndpointSettings, Judge, JudgeSettings, Price, Request, Verdict, View
from strop.judge.ask import Answer
from strop.judge.rubric import default_rubric, read_rubric
from strop.judge.verdict import Failure, apply
from strop.trajectory.model import Group

EMBEDDED = "judge"
EMBEDDED_SLOTS = 16
ADAPTER = "adapters/judge"
FREE = Price(input=0.0, output=0.0)

One = Callable[[Group], Awaitable[Verdict]]
"""Judges one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A judge and how it is asked: through sessions of `engine`'s gateway where it is served by it.

    Asked through sessions, an embedded judge's verdicts are the same in every run.
    """

    judge: Judge
    endpoint: Endpoint
    waits: Waits
    engine: EmbeddedEngine | None = None

    async def judged(self, groups: Sequence[Group], part: str) -> tuple[list[Group], list[Verdict]]:
        """Every group with its scores, or reasons why not, and the verdicts. Order is kept.

        Raises Unreachable for a refused key or an unknown model.
        """
        with self.sitting(groups, part) as one:
            tasks = [asyncio.ensure_future(one(group)) for group in groups]
            try:
                verdicts = list(await asyncio.gather(*tasks))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return [apply(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)], verdicts

    @contextmanager
    def sitting(self, groups: Sequence[Group], part: str) -> Iterator[One]:
        """What judges each of `groups` while the block lasts. An embedded judge needs all asked at once."""
        keys = {group.group_id: f"judge/{part}/{group.group_id}" for group in groups}
        urls = dict(self.engine.gateway.open(list(keys.values()))) if self.engine else {}

        def leave(key: str) -> None:
            if self.engine is not None and urls.pop(key, None) is not None:
                self.engine.gateway.take(key)

        async def one(group: Group) -> Verdict:
            key = keys[group.group_id]
            try:
                if key not in urls:
                    return await self.judge(group)
                return await self.judge(group, ask=_InTurn(self.endpoint, urls[key]))
            finally:
                # At once: the sampler waits for every session that may still ask.
                leave(key)

        try:
            yield one
        finally:
            for key in list(urls):
                leave(key)


class _InTurn:
    """One call at a time: what a session asks is then in the same order in every run."""

    def __init__(self, endpoint: Endpoint, url: str) -> None:
        self.identity = endpoint.identity
        self._ask = endpoint.at(url)
        self._turn = asyncio.Lock()

    async def __call__(self, request: Request) -> Answer | str:
        async with self._turn:
            return await self._ask(request)


def nobody_answered(verdicts: Sequence[Verdict]) -> bool:
    """Whether no group that needed a call has a verdict, because the judge could not be reached."""
    asked = [verdict for verdict in verdicts if verdict.failure or verdict.asked]
    return bool(asked) and all(v.failure in (Failure.TRANSPORT, Failure.TIMEOUT) for v in asked)


def bench(config: RunConfig, engine: EmbeddedEngine) -> Bench:
    """The judge the run file asks for; the embedded one is served by `engine` from now on."""
    rubric = rubric_of(config.judge, at_desk=config.rollout.agent == ORDER_DESK)
    settings = judge_settings(config.judge, seed=config.training.seed)
    if not config.judge.embedded:
        return endpoint_bench(config.judge, settings, rubric)
    return embedded_bench(config.judge, engine, settings, rubric)


def embedded_bench(
    config: JudgeConfig, engine: EmbeddedEngine, settings: JudgeSettings, rubric: str
) -> Bench:
    """The embedded judge, served by `engine` from now on. Raises ConfigError where it cannot be."""
    try:
        engine.serve_adapter(EMBEDDED, config.adapter or shipped(ADAPTER), EMBEDDED_SLOTS)
    except ModelError as error:
        raise ConfigError(
            f"[judge] the embedded judge cannot be served over this model; give base_url and model of "
            f"another judge ({error})"
        ) from error
    waits = Waits()
    endpoint = Endpoint(
        engine.base_url,
        engine.api_key,
        EMBEDDED,
        settings=_endpoint_settings(config, settings.seed, FREE),
        on_wait=waits.note,
    )
    judge = Judge(endpoint, settings, rubric, view_of(config))
    return Bench(judge=judge, endpoint=endpoint, waits=waits, engine=engine)


def endpoint_bench(config: JudgeConfig, settings: JudgeSettings, rubric: str) -> Bench:
    """The endpoint that `config` names as a judge. Raises ConfigError where its key is not set."""
    key = os.environ.get(config.api_key_env)
    if not key:
        raise ConfigError(
            f"[judge] api_key_env: the environment has no {config.api_key_env}; set it to the judge's key"
        )
    assert config.base_url is not None
    assert config.model is not None
    priced, waits = config.prices.get(config.model), Waits()
    price = Price(priced.input, priced.output, priced.cached_input) if priced else None
    sampling = _endpoint_settings(config, settings.seed, price)
    endpoint = Endpoint(config.base_url, key, config.model, settings=sampling, on_wait=waits.note)
    return Bench(judge=Judge(endpoint, settings, rubric, view_of(config)), endpoint=endpoint, waits=waits)


def rubric_of(config: JudgeConfig, *, at_desk: bool) -> str:
    """The rubric file's text, else the order desk's or the general one. Raises InputError."""
    if config.rubric is not None:
        return read_rubric(config.rubric)
    return shipped("rubric.md").read_text(encoding="utf-8") if at_desk else default_rubric()


def judge_settings(config: JudgeConfig, *, seed: int) -> JudgeSettings:
    """How `config` says to judge. Raises ConfigError.

    The judge itself does not stop after failures in a row: a training and a sitting do, each keeping the
    verdicts that failed.
    """
    return JudgeSettings(
        mode=config.mode,
        orders=config.orders,
        max_orders=config.max_orders,
        escalate_below=config.escalate_below,
        combine=config.combine,
        most_at_once=config.most_at_once,
        attempts=config.attempts,
        max_tokens=config.max_tokens,
        # All groups of an embedded judge must be able to ask at once: its sampler waits for each of them.
        concurrency=1024 if config.embedded else config.concurrency,
        deadline_s=config.deadline_s,
        max_calls=config.max_calls,
        max_money=config.max_money,
        cache=cache_of(config),
        seed=seed,
    )


def cache_of(config: JudgeConfig) -> Path | None:
    """The folder of kept replies, None for no cache: where nothing is said, an endpoint has one."""
    if isinstance(config.cache, Path):
        return config.cache
    wanted = not config.embedded if config.cache is None else config.cache
    return cache_root() / "judge" if wanted else None


def view_of(config: JudgeConfig) -> View:
    """What of an attempt the judge sees, as `config` says."""
    return View(
        reasoning=config.reasoning,
        images=config.images,
        volatile=config.volatile,
        repeats=config.repeats,
        attempt_tokens=config.attempt_tokens,
        group_tokens=config.group_tokens,
        bytes_per_token=config.bytes_per_token,
    )


def shipped(name: str) -> Path:
    """A file or folder that comes with the demo."""
    return Path(str(files("strop.demo").joinpath(name)))


def _endpoint_settings(config: JudgeConfig, seed: int, price: Price | None) -> EndpointSettings:
    return EndpointSettings(
        temperature=config.temperature,
        seed=seed,
        timeout_s=config.timeout_s,
        patience_s=config.patience_s,
        request=config.request,
        price=price,
    )
