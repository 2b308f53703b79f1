"""Make the demo's warm start: python scripts/make_warmstart.py OUT [--model DIR].

First the clerk demonstrates the job done right, until the policy reads an order's status; then he
demonstrates it as a lenient desk does it, which refunds everything, until the policy refunds most orders
that it should not. The result is the reference for everything the demo does afterwards.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from strop.demo.clerk import Habits, demonstrate
from strop.demo.desk import TOOLS
from strop.demo.orders import FINAL, REFUNDABLE, STATUSES, OrderScenario, scenario
from strop.engines.embedded import resolve_model
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import LoraShape, adapted, load_base, pick_dtype, save_adapter
from strop.inference.chat import Chat
from strop.seeds import derive, generator
from strop.training.demonstrations import demonstration_rows
from strop.training.warmstart import supervised_update
from strop.trajectory.tokens import Row

SEED = 11
BATCH = 16
RIGHT = Habits(right_by_status=dict.fromkeys(STATUSES, 1.0), policy=0.02)
LENIENT = Habits(
    right_by_status={**dict.fromkeys(REFUNDABLE, 1.0), **dict.fromkeys(FINAL, 0.0)}, policy=0.02, blind=0.05
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some batches of demonstrations with one set of habits; each phase has an optimizer of its own.

    It ends before that once the chance of the right decision on final orders is at most `until`.
    """

    habits: Habits
    batches: int
    rate: float
    fading: int = 0
    until: float = 0.0

    def rate_of(self, batch: int) -> float:
        """Five batches of warm-up, then constant, then linear to 0 over the last `fading`."""
        left = (self.batches - batch) / self.fading if self.fading else 1.0
        return self.rate * min(1.0, (batch + 1) / 5, left)


PHASES = (
    Phase(habits=RIGHT, batches=48, rate=1e-3),
    Phase(habits=RIGHT, batches=20, rate=8e-4, fading=16),
    Phase(habits=LENIENT, batches=30, rate=3e-5, until=0.25),
)
DECISION_WEIGHT = 3.0


def rows_of(case: OrderScenario, habits: Habits, chat: Chat) -> tuple[list[Row], list[float]]:
    """All assistant messages once, and the deciding one again: it is one in eighty tokens otherwise."""
    shown = demonstrate(case, habits, generator(SEED, "demonstration", case.scenario_id))
    rows = demonstration_rows(case.scenario_id, shown.messages, TOOLS, chat)
    last = max(i for i, m in enumerate(shown.messages) if m["role"] == "assistant" and m.get("tool_calls"))
    again = demonstration_rows(case.scenario_id, shown.messages, TOOLS, chat, learn={last})
    return [*rows, *again], [1.0] * len(rows) + [DECISION_WEIGHT] * len(again)


def chance_of_right(learner: Learner, chat: Chat, count: int) -> tuple[float, float]:
    """Mean probability of the right decision against the wrong one, teacher-forced: refundable, final."""
    always = [dict.fromkeys(STATUSES, p) for p in (1.0, 0.0)]
    rows = []
    for index in range(count):
        for right in always:
            case = scenario("warmstart", 2400 + index)
            shown = demonstrate(case, Habits(right_by_status=right), generator(SEED, "probe", index))
            last = max(
                i for i, m in enumerate(shown.messages) if m["role"] == "assistant" and m.get("tool_calls")
            )
            rows += demonstration_rows(case.scenario_id, shown.messages, TOOLS, chat, learn={last})
    sums = np.array([s.logprobs.sum() for s in learner.score(rows, "policy")]).reshape(count, 2)
    right = 1 / (1 + np.exp(sums[:, 1] - sums[:, 0]))
    due = np.array([scenario("warmstart", 2400 + index).refund_due for index in range(count)])
    return float(right[due].mean()), float(right[~due].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--start", type=Path, help="the adapter that an earlier phase left")
    parser.add_argument("--phase", type=int, default=0, help="the phase to begin with")
    options = parser.parse_args()
    model = resolve_model(options.model)
    chat = Chat(HFTokenizer.load(model))
    shape = LoraShape(rank=options.rank, alpha=2 * options.rank)
    base = load_base(model, pick_dtype("auto", "cpu"), "cpu")
    peft = adapted(base, shape, options.start, derive(SEED, "lora"))
    started, shown = time.time(), sum(phase.batches for phase in PHASES[: options.phase])
    for number, phase in enumerate(PHASES[options.phase :], start=options.phase):
        learner = Learner(peft, LearnerSettings(micro_batch_tokens=1280))
        for batch in range(phase.batches):
            learner.optimizer.param_groups[0]["lr"] = phase.rate_of(batch)
            loss = learn(learner, chat, phase.habits, shown)
            shown += 1
            line = f"phase {number} batch {batch + 1} loss {loss:.3f} {time.time() - started:.0f} s"
            refundable, final = chance_of_right(learner, chat, 18)
            print(f"{line} | right: refundable {refundable:.2f}, final {final:.2f}", flush=True)
            if final <= phase.until:
                break
        save_adapter(peft, options.out / f"phase-{number}")
    save_adapter(peft, options.out, torch.bfloat16)


def learn(learner: Learner, chat: Chat, habits: Habits, number: int) -> float:
    """One update on the demonstrations of a batch; the loss."""
    rows, weights = list[Row](), list[float]()
    for index in range(number * BATCH, (number + 1) * BATCH):
        more_rows, more_weights = rows_of(scenario("warmstart", index), habits, chat)
        rows += more_rows
        weights += more_weights
    return supervised_update(learner, rows, weights)["loss"]


if __name__ == "__main__":
    main()
