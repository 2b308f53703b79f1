"""Rows as a policy read them, held so that more can be asked of a place once it is known which."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.engines.local.head import Head, logits_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Of each row its sampled tokens' log-probs [n_sampled], and the states [n_sampled, d] they are from."""

    logprobs: Sequence[NDArray[np.float64]]
    states: Sequence[Tensor]
    temperatures: Sequence[float]
    head: Head

    @torch.no_grad()
    def distribution(self, row: int, nth: int) -> NDArray[np.float64]:
        """[V] log-probs of all tokens that could stand where the row's sampled token number `nth` does."""
        logits = logits_of(self.states[row][nth, None], self.head)[0] / self.temperatures[row]
        return torch.log_softmax(logits, dim=0).double().cpu().numpy()
