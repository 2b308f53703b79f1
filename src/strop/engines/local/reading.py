"""How a model's body reads trees: the fastest way that gives what the model itself gives a row alone.

Along branches where the model lets its attention be chosen, FlexAttention on CUDA; with a mask where it
takes masks only; and where its layers cannot tell who may see whom (linear attention, convolutions,
chunks, a position of their own making) row after row, each alone with the model's own attention. What a
model's config does not say, a small tree tells when the model is opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.engines.local import flex, tree_attention
from strop.engines.local.attention import UnsupportedAttention
from strop.engines.local.head import body_of
from strop.engines.local.layers import foreign_layers, windows
from strop.engines.local.tree import Pack, pack
from strop.errors import in_one_line
from strop.trajectory.tokens import Row

Way = Literal["flex", "branches", "masks", "rows"]
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Share of a hidden state's length that rounding may move it by; who reads a neighbour's branch is off by
more in float32, and layers that do are told by their kind in bfloat16."""
PROBE = ((1, 2, 3, 4, 5), (1, 2, 6, 7), (8, 3, 3))
"""Ninths of the vocabulary: rows that share two tokens, one token at other positions, or nothing."""


class Reader:
    """The body of a transformers causal LM, its attention set for good to the way that was chosen.

    `note` says why rows are read one by one; None where they are packed.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._body = model, body_of(model)
        self._own: str = model.config._attn_implementation
        self._windows = windows(model.config.get_text_config())
        self.way: Way = "rows"
        self.note = self._choose()
        if self.note is not None:
            kind = model.config.model_type
            self.note = f"{kind}: {self.note}, so rows are read one by one, shared prefixes each time"

    def packs(self, rows: Sequence[Row], max_tokens: int) -> list[Pack]:
        """As `tree.pack` does; each row a pack of its own where the model cannot read trees."""
        if self.way != "rows":
            return pack(rows, max_tokens)
        return [
            replace(alone, rows=(index,))
            for index, row in enumerate(rows)
            for alone in pack([row], max_tokens)
        ]

    def hidden(self, packed: Pack) -> Tensor:
        """[T, d] states after the final norm, in the model's number format."""
        return self._run(packed, self._arguments(packed))

    def _run(self, packed: Pack, arguments: Mapping[str, Any]) -> Tensor:
        dtype, device = self._model.dtype, self._model.device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            output = self._body(input_ids=self._tensor(packed.ids)[None], use_cache=False, **arguments)
        hidden: Tensor = output.last_hidden_state[0]
        return hidden.to(dtype)

    def _arguments(self, packed: Pack) -> Mapping[str, Any]:
        """How the body is told who sees whom and at which position."""
        if self.way == "rows":
            return {}
        where = {"position_ids": self._tensor(packed.positions)[None]}
        if self.way == "branches":
            return {**where, "branches": tree_attention.branch_views(packed.branches, self._model.device)}
        if self.way == "flex":
            blocks = {w: flex.block_mask(packed, w, self._model.device) for w in set(self._windows.values())}
            return {**where, "attention_mask": self._by_kind(blocks)}
        return {**where, "attention_mask": self._by_kind(self._biases(packed))}

    def _biases(self, packed: Pack) -> dict[int | None, Tensor]:
        """Additive masks [1, 1, T, T] by window."""
        seen, depth = self._tensor(packed.visible()), self._tensor(packed.positions)
        far = depth[:, None] - depth[None, :]
        windows = set(self._windows.values())
        return {w: self._bias(seen if w is None else seen & (far < w)) for w in windows}

    def _bias(self, visible: Tensor) -> Tensor:
        bias = torch.zeros(visible.shape, dtype=self._model.dtype, device=visible.device)
        return bias.masked_fill_(~visible, torch.finfo(bias.dtype).min)[None, None]

    def _by_kind(self, masks: Mapping[int | None, Any]) -> Any:
        """One mask, or one a kind of layer where there are several kinds."""
        windows = self._windows
        if len(windows) == 1:
            return masks[next(iter(windows.values()))]
        return {kind: masks[window] for kind, window in windows.items()}

    @torch.no_grad()
    def _choose(self) -> str | None:
        """Settle on a way, and say why where it is row after row."""
        foreign = foreign_layers(self._model.config.get_text_config())
        if foreign is not None:
            return foreign
        rows = probe_rows(int(self._model.get_input_embeddings().weight.shape[0]))
        expected = torch.cat([self.hidden(alone)[:-1] for alone in self.packs(rows, 1)])
        ways: list[Way] = ["branches", "masks"]
        if self._model.device.type == "cuda":
            ways.insert(0, "flex")
        refusals = []
        for way in ways:
            refusal = self._refusal(way, rows, expected)
            if refusal is None:
                return None
            refusals.append(f"{way}: {refusal}")
        self._set("rows")
        return "; ".join(refusals)

    def _refusal(self, way: Way, rows: Sequence[Row], expected: Tensor) -> str | None:
        """Why the model cannot read a tree this way; None: it can, and is set to do so."""
        try:
            self._set(way)
            (packed,) = self.packs(rows, 100)
            arguments = self._arguments(packed)
            hidden = self._run(packed, arguments)
        except UnsupportedAttention as asked:
            return f"its attention asks for {asked}"
        except Exception as error:  # noqa: BLE001 any model's own code, given a mask it may know nothing of
            return in_one_line(error)
        asked_for = {window for view in arguments.get("branches", ()) for window in view.windows()}
        if asked_for and asked_for != set(self._windows.values()):
            return "its attention is not told of its sliding window"
        got = torch.cat([hidden[self._tensor(nodes)] for nodes in packed.predictor])
        apart = float(((got - expected).float().norm(dim=-1) / expected.float().norm(dim=-1)).max())
        if not apart <= TOLERANCE[self._model.dtype]:
            return f"hidden states are {apart:.2g} of their length from those of the rows alone"
        return None

    def _set(self, way: Way) -> None:
        self.way = way
        if way == "branches":
            tree_attention.install(self._model)
        else:
            self._model.set_attn_implementation("flex_attention" if way == "flex" else self._own)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._model.device)


def probe_rows(vocabulary: int) -> list[Row]:
    """The rows of PROBE."""
    rows = []
    for ninths in PROBE:
        ids = np.array([vocabulary * part // 9 for part in ninths], dtype=np.int64)
        sampled = np.arange(len(ids)) > 0
        rows.append(
            Row(
                trajectory_id="probe",
                ids=ids,
                mask=sampled,
                logprobs=np.zeros(len(ids)),
                turn_of=np.where(sampled, 0, -1),
                temperature=1.0,
            )
        )
    return rows
