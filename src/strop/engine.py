"""THE SEAM: what the training loop and the grader need of any engine. Numpy only.

An engine holds one base model with a LoRA adapter, the policy, and the adapter it started from,
the reference. It trains the policy, scores token rows under either, and serves named, immutable
versions of the policy at `base_url`. Implementations live in `strop.engines`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from strop.trajectory.tokens import Row

Adapter = Literal["policy", "reference"]
Objective = Literal["policy", "supervised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine is: model name, device, compute dtype, vocabulary size, served version.

    `notes` say in a line each what this model makes slow and why.
    """

    model: str
    device: str
    dtype: str
    vocab_size: int
    policy_version: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a model says of one row, at the row's sampled positions in order (float64, [n_sampled]).

    `logprobs` log π(token); `entropy` of the next-token distribution in nats;
    `self_certainty` = KL(uniform || π) = -mean_v log π(v) - log V, higher is more certain;
    `topk_logprob` mean log-prob of the 20 most likely tokens (DeepConf's ingredient). These three are None
    where the reader sees the token's own log-prob alone.
    """

    logprobs: NDArray[np.float64]
    entropy: NDArray[np.float64] | None = None
    self_certainty: NDArray[np.float64] | None = None
    topk_logprob: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What a reference says of a row's sampled tokens (float64, [n_sampled]).

    `logprobs` log π_ref(token); `kl` = KL(π ‖ π_ref) of the next-token distributions in nats, None where
    the reader does not hold both at once.
    """

    logprobs: NDArray[np.float64]
    kl: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrasted:
    """One row as the policy reads it, and as each reference does, in the order of their names."""

    policy: Scored
    references: tuple[Against, ...]


class Contrast(Protocol):
    """A policy read against one reference or several that share its tokenizer.

    A reference that is the policy gives its log-probs bit for bit and KL exactly 0.
    """

    @property
    def references(self) -> Sequence[str]:
        """The references' names."""
        ...

    def read(self, rows: Sequence[Row]) -> list[Contrasted]:
        """Each row under every model. Raises InputError for ids that a model does not have."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A version that is now served, and the probe that proves it.

    `probe_gap` |log p(server) - log p(learner)| in nats over the probe's tokens;
    `probe_bound` the bound it was held to; `probe_separation` how far the version served before is from
    the learner at the probed token (None: unknown), so what the probe can tell apart, and
    `probe_base_separation` how far the bare base is; `seconds` from start to traffic moved.
    """

    version: int
    name: str
    probe_gap: float
    probe_bound: float
    probe_separation: float | None = None
    probe_base_separation: float | None = None
    seconds: float


class Engine(Protocol):
    """One model, one adapter in training, one reference, one served version at a time.

    Contract (tests/contract/test_engine.py runs it over every engine): policy and reference give
    the same log-probs bit for bit before the first step; batch size and packing change nothing
    beyond rounding; a row with advantage 0 or no sampled token moves nothing; save then load
    continues bit for bit; publish raises the version and changes what is served; close twice is fine.
    """

    @property
    def info(self) -> EngineInfo: ...

    @property
    def base_url(self) -> str:
        """OpenAI-compatible endpoint, ending in /v1, that serves the current policy."""
        ...

    def score(self, rows: Sequence[Row], adapter: Adapter) -> list[Scored]:
        """Full read-out of each row under one adapter, in the order given."""
        ...

    def logprobs(self, rows: Sequence[Row], adapter: Adapter) -> list[NDArray[np.float64]]:
        """log π of the sampled tokens of each row: float64 arrays of length row.mask.sum()."""
        ...

    def accumulate(
        self, rows: Sequence[Row], advantages: Sequence[float], objective: Objective = "policy"
    ) -> Mapping[str, float]:
        """Add the gradient of the loss over these rows; one advantage a row.

        "policy" is the clipped policy-gradient loss against the sampler's log-probs; "supervised" is
        -advantage · log π, for demonstrations that nothing sampled.

        Returns `tokens`, the number of sampled tokens, and means over them, where there are any:
        `loss`, aggregated as the engine's loss is; for "policy" also `ratio` π / μ of learner to
        sampler, `mismatch` |log π - log μ| in nats, `clip_share` of tokens whose gradient is cut off or
        weight capped, `entropy` in nats of what the tokens were drawn from; `kl` to the reference, where
        the loss has that term, as without it nobody computes the reference.
        """
        ...

    def step(self) -> Mapping[str, float]:
        """Apply the accumulated gradient, averaged as the engine's loss is, and clear it.

        Returns grad_norm and learning_rate. A gradient of exactly 0 moves nothing, momentum included.
        Raises EngineError where no token was accumulated.
        """
        ...

    def publish(self) -> Published:
        """Serve the current adapter under a new version name. Raises PublishError if the probe fails."""
        ...

    def save(self, path: Path) -> None:
        """Write adapter, optimizer, RNG and version into the directory `path` (it exists, empty)."""
        ...

    def load(self, path: Path) -> None:
        """Continue from what `save` wrote; does not publish, and never takes the version back."""
        ...

    def close(self) -> None:
        """Stop serving and free memory. Calling it again does nothing."""
        ...
