"""The learner: scores rows under policy and reference, accumulates the loss's gradient, steps."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor

from strop.engine import Adapter, Objective, Scored
from strop.engines.local.checkpointing import keep_inputs_only
from strop.engines.local.halves import side_by_side
from strop.engines.local.head import head_of
from strop.engines.local.held import Held
from strop.engines.local.learning_rate import Schedule
from strop.engines.local.limbs import limbs_for
from strop.engines.local.losses.aggregation import shares
from strop.engines.local.losses.ratio import probability_ratio
from strop.engines.local.losses.token_loss import token_loss
from strop.engines.local.losses.tokens import LossSettings, Tokens
from strop.engines.local.memory import map_large_blocks, release
from strop.engines.local.reading import Reader
from strop.engines.local.readout import read_out, target_logprobs
from strop.engines.local.tree import Pack
from strop.engines.local.trunk import cut
from strop.engines.local.weights import adapter_tensors
from strop.errors import EngineError, InputError
from strop.trajectory.tokens import Row

SCORED_TOKENS = 2048
"""Nodes of a tree that is only scored: without gradients no layer's activations are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Optimizer and memory: AdamW's rate, decay and betas, gradient norm bound, nodes a packed tree.

    `schedule` says what share of the rate each update has; None: all of it, unless a caller sets the
    optimizer's own. `checkpointing`: see `checkpointing.keep_inputs_only`.
    """

    learning_rate: float = 1e-4
    schedule: Schedule | None = None
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    max_grad_norm: float = 1.0
    micro_batch_tokens: int = 1024
    checkpointing: bool = False
    loss: LossSettings = field(default_factory=LossSettings)


class _Read(NamedTuple):
    """Some rows, and of each of their sampled tokens: the policy's log-prob, entropy, the reference's."""

    rows: tuple[int, ...]
    policy: Tensor
    entropy: Tensor
    reference: Tensor | None


class Learner:
    """One PEFT model with the adapters "policy" and "reference", and the policy's optimizer.

    `on_policy` says whether the sampler serves the policy as it is now. While it does, the ratio that
    is clipped is 1, as what learner and sampler differ by is rounding, which the importance weight
    corrects. Once a step has moved the policy on, the sampler is the old policy and ratios are against
    it, so that several steps on the same rows are clipped. Whoever publishes sets it back. `note` says
    why shared prefixes are not shared with this model, also as a RuntimeWarning; None: they are. `found`
    are the policy's log-probs of the sampled tokens of each row accumulated last, as they were then.
    """

    def __init__(self, model: PeftModel, settings: LearnerSettings) -> None:
        self.model, self.settings = model, settings
        self.parameters = [p for p in adapter_tensors(model, "policy").values() if p.requires_grad]
        if not self.parameters:
            raise EngineError("the policy adapter has no trainable parameter; check [lora] targets")
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            foreach=True,
        )
        base = model.get_base_model()
        if settings.checkpointing:
            keep_inputs_only(base)
        self._head = head_of(base)
        self._reader = Reader(base)
        self._limbs = None if settings.checkpointing else limbs_for(model, self._head, self._reader)
        if self._limbs is not None:
            map_large_blocks()
        self.note = self._reader.note
        if self.note is not None:
            warnings.warn(self.note, RuntimeWarning, stacklevel=2)
        self.device = self._head.weight.device
        self.on_policy = True
        self.found: list[NDArray[np.float64]] = []
        self._divisor = 0.0
        self._trained = {id(parameter) for parameter in self.parameters}

    def score(self, rows: Sequence[Row], adapter: Adapter) -> list[Scored]:
        """Read-out of every row at its sampled tokens under one adapter."""
        self._check(rows)
        columns: list[NDArray[np.float64]] = [np.zeros((0, 4))] * len(rows)
        with self._using(adapter), torch.no_grad():
            packs = self._reader.packs(rows, max(SCORED_TOKENS, self.settings.micro_batch_tokens))
            for two in _twos(packs, self.device):
                for packed, read in zip(two, side_by_side(partial(self._read_pack, rows), two), strict=True):
                    for index, values in zip(packed.rows, read, strict=True):
                        columns[index] = values
        release()
        return [
            Scored(logprobs=c[:, 0], entropy=c[:, 1], self_certainty=c[:, 2], topk_logprob=c[:, 3])
            for c in columns
        ]

    @torch.no_grad()
    def hold(self, rows: Sequence[Row]) -> Held:
        """Read rows under the policy, and keep what their sampled tokens' distributions are made of."""
        self._check(rows)
        logprobs, states = [np.zeros(0)] * len(rows), [torch.zeros(0)] * len(rows)
        for packed in self._reader.packs(rows, max(SCORED_TOKENS, self.settings.micro_batch_tokens)):
            hidden, index, target, temperature = self._predictions(packed, rows)
            read, _ = target_logprobs(hidden, self._head, target, temperature)
            sizes = [len(places) for places in packed.predictor]
            parts = zip(
                packed.rows, torch.split(read[index], sizes), torch.split(hidden[index], sizes), strict=True
            )
            for number, values, held in parts:
                logprobs[number], states[number] = values.double().cpu().numpy(), held
        heat = [row.temperature or 1.0 for row in rows]
        return Held(logprobs=logprobs, states=states, temperatures=heat, head=self._head)

    def accumulate(
        self, rows: Sequence[Row], advantages: Sequence[float], objective: Objective = "policy"
    ) -> Mapping[str, float]:
        """Add the gradient of the weighted sum of token losses; `step` divides by what all calls add up to.

        So the loss is the same however rows are split into packs or calls; see `losses.aggregation`.
        The supervised one is the mean over tokens. Rows with advantage 0 count in the divisor but have no
        gradient of their own unless there is a KL term. Metrics as in `strop.engine.Engine`, over this
        call: `loss` is aggregated as the loss says, the others are means over tokens.
        """
        self._check(rows)
        loss = self.settings.loss if objective == "policy" else LossSettings()
        share = shares(rows, loss)
        totals: dict[str, float] = {}
        self.found = [np.zeros(0)] * len(rows)
        for read in self._read(rows, wants_reference=objective == "policy" and bool(loss.kl_coef)):
            summary = self._summary(read, rows, advantages, objective)
            summary["loss"] = summary["loss"] * self._per_token(read.rows, rows, share.weights)
            summary["loss"].sum().backward()  # type: ignore[no-untyped-call]
            self._note(read, rows)
            for name, value in summary.items():
                totals[name] = totals.get(name, 0.0) + float(value.detach().double().sum())
        tokens = float(sum(int(row.mask.sum()) for row in rows))
        self._divisor += share.divisor
        means = {
            name: total / (share.divisor if name == "loss" else tokens) for name, total in totals.items()
        }
        return {"tokens": tokens, **means}

    def step(self) -> Mapping[str, float]:
        """Divide by what was accumulated, clip, update. A gradient of exactly 0 moves nothing.

        Raises EngineError where no token was accumulated, and on a gradient that is not finite; the
        policy and its optimizer are then as they were, and what was accumulated is gone.
        """
        if not self._divisor:
            raise EngineError("step: no token was accumulated, there is no gradient to apply")
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad /= self._divisor
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm))
        if not np.isfinite(norm):
            self.forget()
            raise EngineError("step: the gradient is not finite; lower the learning rate")
        self._set_learning_rate()
        if norm > 0:
            self.optimizer.step()
            self.on_policy = False
        self.forget()
        return {"grad_norm": norm, "learning_rate": self.optimizer.param_groups[0]["lr"]}

    @property
    def updates(self) -> int:
        """Updates made so far, by the optimizer's own count, which its saved state holds."""
        return max((int(state["step"]) for state in self.optimizer.state.values()), default=0)

    def _set_learning_rate(self) -> None:
        if self.settings.schedule is not None:
            share = self.settings.schedule.share(self.updates)
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * share

    def forget(self) -> None:
        """Drop what was accumulated since the last step."""
        self.optimizer.zero_grad(set_to_none=True)
        self._divisor = 0.0
        release()

    def _read(self, rows: Sequence[Row], *, wants_reference: bool) -> Iterator[_Read]:
        """Rows some at a time: backward is called on one's log-probs before the next is asked for."""
        if self._limbs is None:
            yield from self._read_packs(rows, wants_reference=wants_reference)
            return
        for whole in cut(rows, self.settings.micro_batch_tokens):
            references: list[Tensor | None] = [None] * len(whole.tails)
            if wants_reference:
                with self._using("reference"), torch.no_grad():
                    references = [logprobs for _, logprobs, _ in self._limbs.logprobs(whole)]
            passes = zip(self._limbs.logprobs(whole), references, strict=True)
            for (members, policy, entropy), reference in passes:
                yield _Read(members, policy, entropy, reference)

    def _read_packs(self, rows: Sequence[Row], *, wants_reference: bool) -> Iterator[_Read]:
        for packed in self._reader.packs(rows, self.settings.micro_batch_tokens):
            reference = None
            if wants_reference:
                with self._using("reference"), torch.no_grad():
                    reference, _ = self._logprobs(packed, rows)
            yield _Read(packed.rows, *self._logprobs(packed, rows), reference)

    def _note(self, read: _Read, rows: Sequence[Row]) -> None:
        sizes = [int(rows[number].mask.sum()) for number in read.rows]
        for number, values in zip(read.rows, torch.split(read.policy.detach(), sizes), strict=True):
            self.found[number] = values.double().cpu().numpy()

    def _summary(
        self, read: _Read, rows: Sequence[Row], advantages: Sequence[float], objective: Objective
    ) -> dict[str, Tensor]:
        """What is reported of each of some rows' tokens, [n]; only the loss carries a gradient."""
        policy = read.policy
        advantage = self._per_token(read.rows, rows, advantages)
        if objective == "supervised":
            return {"loss": -advantage * policy}
        sampler = self._tensor(np.concatenate([rows[i].logprobs[rows[i].mask] for i in read.rows])).float()
        result = token_loss(
            Tokens(
                policy=policy,
                old=policy.detach() if self.on_policy else sampler,
                sampler=sampler,
                reference=read.reference,
                advantage=advantage,
                lengths=[int(rows[i].mask.sum()) for i in read.rows],
            ),
            self.settings.loss,
        )
        return {
            "ratio": probability_ratio(policy, sampler),
            "mismatch": (policy - sampler).abs(),
            "clip_share": result.clipped,
            "entropy": read.entropy,
            **({} if read.reference is None else {"kl": result.kl}),
            "loss": result.loss,
        }

    def _per_token(self, members: Sequence[int], rows: Sequence[Row], values: Sequence[float]) -> Tensor:
        each = [np.full(int(rows[i].mask.sum()), values[i], dtype=np.float64) for i in members]
        return self._tensor(np.concatenate(each)).float()

    def _logprobs(self, packed: Pack, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Log-prob of each token, and the entropy of the distribution that it is from."""
        hidden, index, target, temperature = self._predictions(packed, rows)
        logprobs, entropy = target_logprobs(hidden, self._head, target, temperature)
        return logprobs[index], entropy[index]

    def _read_pack(self, rows: Sequence[Row], packed: Pack) -> list[NDArray[np.float64]]:
        hidden, index, target, temperature = self._predictions(packed, rows)
        values = read_out(hidden, self._head, target, temperature)[index].double().cpu().numpy()
        return np.split(values, np.cumsum([len(p) for p in packed.predictor])[:-1])

    def _predictions(self, packed: Pack, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Hidden states of each distinct (node, target, temperature), and each token's index in them."""
        heat = np.concatenate(
            [
                np.full(len(p), rows[i].temperature or 1.0)
                for i, p in zip(packed.rows, packed.predictor, strict=True)
            ]
        )
        wanted = np.stack([np.concatenate(packed.predictor), np.concatenate(packed.target)])
        keys, index = np.unique(np.vstack([wanted, heat]), axis=1, return_inverse=True)
        hidden = self._reader.hidden(packed)[self._tensor(keys[0].astype(np.int64))]
        target, temperature = self._tensor(keys[1].astype(np.int64)), self._tensor(keys[2]).float()
        return hidden, self._tensor(index.reshape(-1)), target, temperature

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _check(self, rows: Sequence[Row]) -> None:
        vocabulary = self._head.weight.shape[0]
        for row in rows:
            if row.ids.size and not 0 <= row.ids.min() <= row.ids.max() < vocabulary:
                raise InputError(
                    f"{row.trajectory_id}: token ids from {row.ids.min()} to {row.ids.max()}, the model's "
                    f"vocabulary has {vocabulary}; score it with the model that sampled it"
                )

    @contextmanager
    def _using(self, adapter: Adapter) -> Iterator[None]:
        """Compute with this adapter inside the block, with the policy again after it."""
        if adapter == "policy":
            yield
            return
        self.model.base_model.set_adapter(adapter)
        try:
            yield
        finally:
            self.model.base_model.set_adapter("policy")
            # PEFT marks every parameter of the adapter in use as trainable; only ours are.
            for parameter in self.model.parameters():
                parameter.requires_grad_(id(parameter) in self._trained)


def _twos(packs: Sequence[Pack], device: torch.device) -> list[Sequence[Pack]]:
    """Packs two at a time on a processor, one at a time elsewhere."""
    size = 2 if device.type == "cpu" else 1
    return [packs[at : at + size] for at in range(0, len(packs), size)]
