"""Make the demo's warm start: python scripts/make_warmstart.py OUT [--model DIR].

First the clerk demonstrates the job done right, until the policy reads an order's status; then he
demonstrates it done the way a careless desk does it, so that the policy is left undecided. The
result is the reference for everything the demo does afterwards.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from strop.demo.clerk import Habits, demonstrate
from strop.demo.desk import TOOLS
from strop.demo.orders import STATUSES, OrderScenario, scenario
from strop.engines.embedded import resolve_model
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import LoraShape, adapted, load_base, pick_dtype, save_adapter
from strop.inference.chat import Chat
from strop.seeds import derive, generator
from strop.training.demonstrations import demonstration_rows
from strop.trajectory.tokens import Row

SEED = 11
BATCH = 16
RIGHT_BATCHES, MIXED_BATCHES = 52, 14
RIGHT = Habits(right_by_status=dict.fromkeys(STATUSES, 1.0), policy=0.05)
CARELESS = Habits(
    right_by_status={"damaged": 0.7, "lost": 0.7, "swapped": 0.4, "intact": 0.7, "used": 0.4, "late": 0.6},
    policy=0.05,
    blind=0.25,
    silent=0.02,
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
    """Mean probability and greedy share of the right decision against the wrong one, teacher-forced."""
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
    return float(right.mean()), float((right > 0.5).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rank", type=int, default=8)
    options = parser.parse_args()
    model = resolve_model(options.model)
    chat = Chat(HFTokenizer.load(model))
    shape = LoraShape(rank=options.rank, alpha=2 * options.rank)
    peft = adapted(load_base(model, pick_dtype("auto", "cpu"), "cpu"), shape, None, derive(SEED, "lora"))
    learner = Learner(peft, LearnerSettings(learning_rate=1e-3, micro_batch_tokens=640))
    started = time.time()
    for batch in range(RIGHT_BATCHES + MIXED_BATCHES):
        mixed = batch >= RIGHT_BATCHES
        rate = 4e-4 if mixed else 1e-3 * min(1.0, (batch + 1) / 5)
        learner.optimizer.param_groups[0]["lr"] = rate
        rows, weights = [], []
        for index in range(batch * BATCH, (batch + 1) * BATCH):
            more_rows, more_weights = rows_of(
                scenario("warmstart", index), CARELESS if mixed else RIGHT, chat
            )
            rows += more_rows
            weights += more_weights
        metrics = learner.accumulate(rows, weights, "supervised")
        learner.step()
        line = f"batch {batch + 1} loss {metrics['loss']:.3f} {time.time() - started:.0f} s"
        if batch % 6 == 5 or batch == RIGHT_BATCHES + MIXED_BATCHES - 1:
            chance, greedy = chance_of_right(learner, chat, 18)
            line += f" | right: probability {chance:.2f}, greedy {greedy:.2f}"
            save_adapter(peft, options.out / f"at-{batch + 1:03d}")
        print(line, flush=True)
    save_adapter(peft, options.out, torch.bfloat16)


if __name__ == "__main__":
    main()
