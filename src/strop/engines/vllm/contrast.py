"""A policy and its references read by a vLLM server: the log-probs it gives of prompts, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strop.engine import Against, Contrasted, Scored
from strop.engines.adapter_files import ADAPTER_CONFIG
from strop.engines.embedded import resolve_model
from strop.engines.local.contrast import BASE, ContrastConfig
from strop.engines.local.engine import PROBE_BOUND
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import pick_device, pick_dtype
from strop.engines.serving import Events, Ground, Told
from strop.engines.vllm.checks import refuse_unscoring
from strop.engines.vllm.command import BASE as SERVED_BASE
from strop.engines.vllm.outline import AdapterFolder, Outline
from strop.engines.vllm.reading_proof import ReadingProof, read_here, refuse_alike
from strop.engines.vllm.scorer import Ask, Scorer, Scores
from strop.engines.vllm.serving import VllmServing
from strop.engines.vllm.settings import VllmSettings
from strop.errors import InputError
from strop.trajectory.tokens import Row

AT_ONCE = 16
"""Requests in flight at a server of ours.

vLLM makes room for a LoRA on the head though no adapter has one, and on a processor a second request beside a
prompt to score then ends the server (0.32). A server of ours has LoRA on the adapters' modules only; of one
that somebody else started that is not known, so it is asked for one prompt at a time.
"""


class VllmContrast:
    """Implements `strop.engine.Contrast`. All sides are read by the same server, in the same way.

    Only log-probs are known: entropy, Self-Certainty, top log-probs and KL are None. Adapters of the same
    content are one name there, asked once, and one that changes nothing is the bare base, so a policy that is
    its reference gives the same numbers bit for bit. `max_length`: one less than the models' context.
    `proved` hears once, of the first rows read, how they were checked. `close` ends the server, or leaves a
    running one as it was.
    """

    def __init__(
        self, config: ContrastConfig, settings: VllmSettings, proved: Callable[[ReadingProof], None]
    ) -> None:
        self.config, self._told = config, proved
        source = resolve_model(config.model)
        self.tokenizer = HFTokenizer.load(source, chat=config.chat)
        self._outline = Outline(source)
        sides = [_side(self._outline, name, config.model) for name in (config.policy, *config.references)]
        longest = self._outline.context - 1
        self.max_length = min(longest, config.max_length or longest)
        ground = self._ground(source, sides)
        self._bound = ground.bound
        self._refused: dict[tuple[int, ...], str] = {}
        self._proved = False
        self._names = [_served_as(side) for side in sides]
        adapters = [side for side in sides if side is not None]
        settings, at_once = _without_head(settings, adapters)
        self._serving = VllmServing(settings, ground, Events(), refuse_unscoring)
        self._scorer = Scorer(self._serving.sampler, at_once)
        try:
            self._serve(adapters)
        except BaseException:
            self.close()
            raise

    @property
    def references(self) -> Sequence[str]:
        return self.config.names or self.config.references

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return self.tokenizer.decode(ids)

    def read(self, rows: Sequence[Row]) -> list[Contrasted]:
        """As the protocol says. Raises EngineError where the server gives no numbers, or others' numbers."""
        for row in rows:
            self._check(row)
        found = self._scored({Ask(name, _ids(row)) for row in rows for name in self._names})
        if rows and not self._proved:
            self._told(self._prove(rows, found))
            self._proved = True
        return [_contrasted(row, [found[Ask(name, _ids(row))] for name in self._names]) for row in rows]

    def close(self) -> None:
        self._serving.close()

    def _ground(self, source: Path | str, sides: Sequence[AdapterFolder | None]) -> Ground:
        device = pick_device(self.config.device)
        dtype = pick_dtype(self.config.dtype, device)
        return Ground(
            source=source,
            base=None,
            device=device,
            dtype=str(dtype).removeprefix("torch."),
            tokenizer=self.tokenizer,
            rank=max((side.rank for side in sides if side is not None), default=1),
            slots=AT_ONCE,
            max_length=self.max_length + 1,
            bound=PROBE_BOUND[dtype],
            token_bytes=self._outline.token_bytes(dtype),
        )

    def _serve(self, adapters: Sequence[AdapterFolder]) -> None:
        prompt = tuple(self.tokenizer.encode("Hello", special=False))
        for adapter in {one.digest: one for one in adapters if one.changes}.values():
            self._serving.serve(_served_as(adapter), 0, adapter.folder, Told(prompt=prompt))
        self._serving.wait()

    def _check(self, row: Row) -> None:
        ids, vocabulary = row.ids, self._outline.vocabulary
        if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary:
            raise InputError(
                f"{row.trajectory_id}: token ids from {ids.min()} to {ids.max()}, the model's "
                f"vocabulary has {vocabulary}; grade it with the model that sampled it"
            )
        if row.temperature not in (0.0, 1.0):
            raise InputError(
                f"{row.trajectory_id}: sampled at temperature {row.temperature:g}; vLLM's log-probs of "
                "prompts are those of temperature 1 alone, so grade it with --engine local"
            )
        if _ids(row) in self._refused:
            raise InputError(f"{row.trajectory_id}: {self._refused[_ids(row)]}")

    def _scored(self, asked: set[Ask]) -> dict[Ask, Scores]:
        some = sorted(one for one in asked if len(one.ids) > 1)
        found = dict(zip(some, self._scorer.score(some), strict=True))
        for one, value in found.items():
            if isinstance(value, InputError):
                self._refused[one.ids] = str(value)
        refused = [value for value in found.values() if isinstance(value, InputError)]
        if refused:
            raise refused[0]
        empty = {one: np.full(len(one.ids), np.nan) for one in asked}
        return empty | {one: value for one, value in found.items() if not isinstance(value, InputError)}

    def _prove(self, rows: Sequence[Row], found: dict[Ask, Scores]) -> ReadingProof:
        row = max(rows, key=lambda row: len(row.ids))
        sides = dict(zip(self._names, (self.config.policy, *self.config.references), strict=True))
        refuse_alike({side: [found[Ask(name, _ids(row))] for row in rows] for name, side in sides.items()})
        served = [found[Ask(name, _ids(row))] for name in self._names]
        return read_here(self.config, self._outline.parameters, row, served, self._bound)


def _side(outline: Outline, name: str, model: str) -> AdapterFolder | None:
    """The adapter of that name; None for the bare base. Raises InputError for another model."""
    folder = Path(name).expanduser()
    if (folder / ADAPTER_CONFIG).is_file():
        return outline.adapter(folder)
    if name in (BASE, model):
        return None
    raise InputError(
        f"{name}: no LoRA folder over --model, nor the bare model; a vLLM server holds one model, so read "
        "whole models with --engine local"
    )


def _without_head(settings: VllmSettings, adapters: Sequence[AdapterFolder]) -> tuple[VllmSettings, int]:
    """The settings of a server with no LoRA on its head, if it is ours, and how much it is asked at once."""
    modules = sorted({module for adapter in adapters for module in adapter.modules})
    if settings.url is not None or not modules:
        return settings, 1
    return replace(settings, args=("--lora-target-modules", *modules, *settings.args)), AT_ONCE


def _served_as(side: AdapterFolder | None) -> str:
    return SERVED_BASE if side is None or not side.changes else f"read-{side.digest[:16]}"


def _ids(row: Row) -> tuple[int, ...]:
    return tuple(row.ids.tolist())


def _contrasted(row: Row, scores: Sequence[NDArray[np.float64]]) -> Contrasted:
    policy, *references = (values[row.mask] for values in scores)
    return Contrasted(
        policy=Scored(logprobs=policy), references=tuple(Against(logprobs=values) for values in references)
    )
