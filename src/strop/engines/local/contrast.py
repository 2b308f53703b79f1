"""A policy and its references read together, over one set of weights where they are adapters of one base."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.engine import Against, Contrasted, Scored
from strop.engines.adapter_files import ADAPTER_CONFIG
from strop.engines.embedded import resolve_model
from strop.engines.local.contrast_readout import POLICY_COLUMNS, contrast_out
from strop.engines.local.halves import side_by_side
from strop.engines.local.head import Head, head_of
from strop.engines.local.lockstep import lockstep_for
from strop.engines.local.memory import release
from strop.engines.local.pages import Pages, Span, give_back
from strop.engines.local.reading import Reader
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.tree import Branch, Pack
from strop.engines.local.weights import DType, load_base, pick_device, pick_dtype, share, wearing
from strop.errors import InputError
from strop.trajectory.tokens import Row

NODES = 4096
"""Nodes of a tree, unless one row alone has more."""
TOGETHER = 2
"""Rows as long as the longest that a tree has room for, where it is read in pieces."""
STRETCH = 256
"""Nodes of a branch whose attention is one product: none is computed above the diagonal beyond it."""
BASE = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastConfig:
    """Who is read: adapter folders over `model`, "base" for the bare model, or whole models.

    `model`, and each whole model, is "smollm2", a folder or a hub name. `references` are in order, called
    `names` or as they are. `dtype` "auto" is float32 on the CPU. `max_length` None: as long as the models'
    contexts. `chat`: the tokenizer must have a chat template.
    """

    policy: str
    references: tuple[str, ...] = (BASE,)
    names: tuple[str, ...] = ()
    model: str = "smollm2"
    dtype: DType = "auto"
    device: str = "auto"
    max_length: int | None = None
    chat: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One model as it is read: its body, and its head."""

    model: Any
    reader: Reader
    head: Head
    pages: list[Span]
    context: int


class LocalContrast:
    """Implements `strop.engine.Contrast`. Trees of rows are computed once a model, shared prefixes once.

    `tokenizer` is everybody's; `max_length` tokens at most can be read at once. A reference that is
    named like the policy is the policy, and nothing is computed twice.
    """

    def __init__(self, config: ContrastConfig) -> None:
        self.config = config
        device = pick_device(config.device)
        loader = _Loader(config, device)
        self._sides = [loader.side(name) for name in (config.policy, *config.references)]
        self._lockstep = lockstep_for(
            [side.model for side in self._sides], [side.reader for side in self._sides]
        )
        self.tokenizer = loader.tokenizer
        self.device = torch.device(device)
        fits = min(side.context for side in self._sides)
        self.max_length = min(fits, config.max_length or fits)

    @property
    def references(self) -> Sequence[str]:
        return self.config.names or self.config.references

    @property
    def note(self) -> str | None:
        """Why shared prefixes are not shared; None: they are."""
        return next((side.reader.note for side in self._sides if side.reader.note), None)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return self.tokenizer.decode(ids)

    def read(self, rows: Sequence[Row]) -> list[Contrasted]:
        self._check(rows)
        # In the order of their ids, rows that begin alike are neighbours and land in one tree.
        order = sorted(range(len(rows)), key=lambda i: rows[i].ids.tolist())
        sorted_rows = [rows[i] for i in order]
        width = POLICY_COLUMNS + 2 * len(self.references)
        columns: list[NDArray[np.float64]] = [np.zeros((0, width))] * len(rows)
        # Models in lockstep are side by side themselves.
        two = 2 if self.device.type == "cpu" and self._lockstep is None else 1
        with torch.inference_mode():
            packs = self._packs(sorted_rows)
            for at in range(0, len(packs), two):
                some = packs[at : at + two]
                for packed, read in zip(
                    some, side_by_side(partial(self._pack, sorted_rows), some), strict=True
                ):
                    for index, values in zip(packed.rows, read, strict=True):
                        columns[order[index]] = values
        release()
        return [_contrasted(values) for values in columns]

    def _packs(self, rows: Sequence[Row]) -> list[Pack]:
        """Trees that all models can read, of stretches short enough for causal attention to pay."""
        slowest = next((s for s in self._sides if s.reader.way == "rows"), self._sides[0])
        nodes = NODES
        if self._lockstep is not None:
            nodes = max(NODES, TOGETHER * max((len(row.ids) for row in rows), default=0))
        return [_in_stretches(packed) for packed in slowest.reader.packs(rows, nodes)]

    def _pack(self, rows: Sequence[Row], packed: Pack) -> list[NDArray[np.float64]]:
        heat = np.concatenate(
            [
                np.full(len(nodes), rows[i].temperature or 1.0)
                for i, nodes in zip(packed.rows, packed.predictor, strict=True)
            ]
        )
        wanted = np.stack([np.concatenate(packed.predictor), np.concatenate(packed.target)])
        keys, index = np.unique(np.vstack([wanted, heat]), axis=1, return_inverse=True)
        nodes, target = self._tensor(keys[0].astype(np.int64)), self._tensor(keys[1].astype(np.int64))
        values = self._read_out(self._states(packed, nodes), target, self._tensor(keys[2]).float())
        flat = values.double().cpu().numpy()[index.reshape(-1)]
        return np.split(flat, np.cumsum([len(p) for p in packed.predictor])[:-1])

    def _states(self, packed: Pack, nodes: Tensor) -> list[Tensor]:
        """[n, d] under each model; the same tensor where it is the same model."""
        if self._lockstep is not None:
            return _taken(self._lockstep.hidden(packed), nodes)
        known: dict[int, Tensor] = {}
        for side in self._sides:
            if id(side) not in known:
                known[id(side)] = side.reader.hidden(packed)
        return _taken([known[id(side)] for side in self._sides], nodes)

    def _read_out(self, states: Sequence[Tensor], target: Tensor, heat: Tensor) -> Tensor:
        heads = [side.head for side in self._sides]

        def half(part: slice) -> Tensor:
            return contrast_out(_taken(states, part), heads, target[part], heat[part])

        middle = len(target) // 2 if self._lockstep is not None else 0
        parts = [slice(0, middle), slice(middle, None)] if middle else [slice(None)]
        values = torch.cat(side_by_side(half, parts))
        for side in self._sides:
            give_back(side.pages)
        return values

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _check(self, rows: Sequence[Row]) -> None:
        vocabulary = min(side.head.weight.shape[0] for side in self._sides)
        for row in rows:
            if row.ids.size and not 0 <= row.ids.min() <= row.ids.max() < vocabulary:
                raise InputError(
                    f"{row.trajectory_id}: token ids from {row.ids.min()} to {row.ids.max()}, the model's "
                    f"vocabulary has {vocabulary}; grade it with the model that sampled it"
                )


class _Loader:
    """Models by name, each loaded once; adapters share the weights of one base."""

    def __init__(self, config: ContrastConfig, device: str) -> None:
        self._model, self._chat = config.model, config.chat
        # A grade is the small difference of two log-probs: rounding to bfloat16 moves it by a nat and more.
        exact: DType = "float32" if config.dtype == "auto" and device == "cpu" else config.dtype
        self._dtype, self._device = pick_dtype(exact, device), device
        self._wholes: dict[str, Any] = {}
        self._sides: dict[str, _Side] = {}
        self._tokenizers: dict[str, HFTokenizer] = {}

    @property
    def tokenizer(self) -> HFTokenizer:
        return next(iter(self._tokenizers.values()))

    def side(self, name: str) -> _Side:
        """Raises ModelError for what cannot be read, InputError for another tokenizer."""
        adapter = Path(name).expanduser() / ADAPTER_CONFIG
        worn = adapter.is_file()
        key = str(adapter.parent.resolve()) if worn else self._model if name == BASE else name
        if key not in self._sides:
            self._sides[key] = self._made(key, worn=worn)
        return self._sides[key]

    def _made(self, key: str, *, worn: bool) -> _Side:
        base = self._whole(self._model if worn else key)
        twin = wearing(base, Path(key)) if worn else share(base)
        # The head is read while the attention is the model's own.
        head = head_of(share(base))
        return _Side(
            model=twin,
            reader=Reader(twin),
            head=head,
            pages=Pages().of([head.weight]),
            context=_context(base),
        )

    def _whole(self, name: str) -> Any:
        if name not in self._wholes:
            source = resolve_model(name)
            # Only the policy's writes conversations, and it comes first; a base model has no template.
            chat = self._chat and not self._tokenizers
            self._add_tokenizer(name, HFTokenizer.load(source, chat=chat))
            self._wholes[name] = load_base(source, self._dtype, self._device)
            pages = Pages()
            give_back(pages.of(self._wholes[name].parameters()))
            pages.lend(self._wholes[name])
        return self._wholes[name]

    def _add_tokenizer(self, name: str, found: HFTokenizer) -> None:
        for other, known in self._tokenizers.items():
            if not known.agrees(found):
                raise InputError(
                    f"{name}: its tokenizer is not that of {other}; policy and reference must share one, "
                    "for they score the same token ids"
                )
        self._tokenizers[name] = found


def _taken(states: Sequence[Tensor], nodes: Tensor | slice) -> list[Tensor]:
    """The same nodes of each; still one tensor where it was one."""
    taken = {id(each): each[nodes] for each in states}
    return [taken[id(each)] for each in states]


def _context(model: Any) -> int:
    config = model.config.get_text_config()
    length: int | None = getattr(config, "max_position_embeddings", None)
    return length or 1 << 30


def _in_stretches(packed: Pack) -> Pack:
    """The same tree, long branches cut: what comes before in a branch is then the path of the next."""
    branches: list[Branch] = []
    for branch in packed.branches:
        for start in range(branch.start, branch.stop, STRETCH):
            before = np.arange(branch.start, start, dtype=np.int64)
            stop = min(branch.stop, start + STRETCH)
            branches.append(Branch(start=start, stop=stop, path=np.concatenate([branch.path, before])))
    return replace(packed, branches=tuple(branches))


def _contrasted(values: NDArray[np.float64]) -> Contrasted:
    policy = Scored(
        logprobs=values[:, 0], entropy=values[:, 1], self_certainty=values[:, 2], topk_logprob=values[:, 3]
    )
    rest = range(POLICY_COLUMNS, values.shape[1], 2)
    return Contrasted(
        policy=policy, references=tuple(Against(logprobs=values[:, c], kl=values[:, c + 1]) for c in rest)
    )
