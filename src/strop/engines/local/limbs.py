"""Log-probs of rows cut into trunk and tails, some rows at a time, with the trunk's gradient at the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor

from strop.engines.local.blocks import Blocks, blocks_for
from strop.engines.local.head import Head
from strop.engines.local.limb_attention import Sight, attend, views
from strop.engines.local.reading import Reader
from strop.engines.local.readout import target_logprobs
from strop.engines.local.trunk import Cut, Part, cut
from strop.trajectory.tokens import Row

TOLERANCE = 1e-3
"""Share of a hidden state's length that rounding may move it by; another architecture is far off."""

KeysValues = tuple[Tensor, Tensor]
"""Of one layer, [n, kv_heads, d] each."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """Over the nodes held, if any, and a part's own. Appends each layer's keys and values to `made`."""

    sight: Sight
    held: Sequence[KeysValues]
    made: list[KeysValues]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.made.append((key, value))
        return attend(query, (key, value), self.held[layer] if self.held else None, self.sight)


class Limbs:
    """Reads cuts with a model's blocks and head."""

    def __init__(self, blocks: Blocks, head: Head) -> None:
        self._blocks, self._head, self._device = blocks, head, head.weight.device

    def logprobs(self, cut: Cut) -> Iterator[tuple[tuple[int, ...], Tensor, Tensor]]:
        """Some rows, and log-prob and entropy of each of their sampled tokens, row after row.

        With gradients on, the caller calls backward on what it makes of the log-probs before it asks for
        more; the trunk's own backward pass is done when it asks last.
        """
        held: list[KeysValues] = []
        logprobs, entropy = self._read(cut.trunk, (), held)
        grown = [tensor for pair in held for tensor in pair] + [logprobs]
        leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in grown]
        above = list(zip(leaves[:-1:2], leaves[1:-1:2], strict=True))
        for tails in cut.tails:
            own, own_entropy = self._read(tails.part, above, [])
            where = _tensor(np.concatenate(tails.where), self._device)
            yield (tails.rows, torch.cat([leaves[-1], own])[where], torch.cat([entropy, own_entropy])[where])
            del own
        given = [(out, leaf.grad) for out, leaf in zip(grown, leaves, strict=True) if leaf.grad is not None]
        if given:
            torch.autograd.backward([out for out, _ in given], [grad for _, grad in given])

    def hidden(self, part: Part, held: Sequence[KeysValues], made: list[KeysValues]) -> Tensor:
        """[n, d] states of a part's nodes; appends each layer's keys and values to `made`."""
        above = len(held[0][0]) if held else 0
        sight = Sight(
            branches=views(part.branches, above, self._blocks.repeats, self._device),
            scaling=self._blocks.scaling,
            scratch=self._blocks.scratch,
        )
        return self._blocks.hidden(
            _tensor(part.ids, self._device),
            _tensor(part.positions, self._device),
            _Attention(sight, held, made),
        )

    def _read(self, part: Part, held: Sequence[KeysValues], made: list[KeysValues]) -> tuple[Tensor, Tensor]:
        if not len(part.ids):
            return torch.zeros(0, device=self._device), torch.zeros(0, device=self._device)
        nodes, targets = (_tensor(column, self._device) for column in part.pairs.T)
        hidden = self.hidden(part, held, made)[nodes]
        return target_logprobs(hidden, self._head, targets, _tensor(part.heat, self._device).float())


@torch.no_grad()
def limbs_for(model: PeftModel, head: Head, reader: Reader) -> Limbs | None:
    """The limbs of a model that `blocks_for` knows, if they say what `reader` says; else None."""
    blocks = blocks_for(model)
    if blocks is None or reader.way != "branches":
        return None
    limbs, row = Limbs(blocks, head), _probe(int(head.weight.shape[0]))
    (packed,), (whole,) = reader.packs([row], len(row.ids)), cut([row], len(row.ids))
    expected = reader.hidden(packed)
    apart = (limbs.hidden(whole.tails[0].part, (), []) - expected).norm(dim=1) / expected.norm(dim=1)
    return limbs if bool((apart <= TOLERANCE).all()) else None


def _probe(vocabulary: int) -> Row:
    ids = np.arange(1, 9, dtype=np.int64) * vocabulary // 9
    sampled = np.arange(len(ids)) > 0
    nothing = np.zeros(len(ids))
    return Row(
        trajectory_id="probe", ids=ids, mask=sampled, logprobs=nothing, turn_of=np.where(sampled, 0, -1)
    )


def _tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
