"""Make the demo's embedded judge: python scripts/make_judge.py OUT --start WARM/at-048 [--model DIR].

Supervised LoRA training on groups of attempts at scenarios that the demo never uses, each with the
verdict a careful reader would give. The prompt is the one strop.judge sends, to the letter. It starts
from the policy that make_warmstart.py leaves at batch 48, which can read an order's status already.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from strop.demo.clerk import Habits, demonstrate
from strop.demo.orders import STATUSES, scenario
from strop.demo.verdicts import reply
from strop.engines.embedded import resolve_model
from strop.engines.local.learner import Learner, LearnerSettings
from strop.engines.local.tokenizer import HFTokenizer
from strop.engines.local.weights import LoraShape, adapted, load_base, pick_dtype, save_adapter
from strop.inference.chat import Chat
from strop.judge.prompt import Prompt, render_prompt
from strop.seeds import derive, generator
from strop.training.demonstrations import demonstration_rows
from strop.trajectory.model import Trajectory
from strop.trajectory.tokens import Row

SEED = 17
BATCH = 6
ATTEMPTS = (4, 5, 6, 6)
RUBRIC = Path(__file__).parent.parent / "src/strop/demo/rubric.md"


def group(index: int) -> list[Trajectory]:
    """The different ones of four to six attempts at one judge scenario, of mixed quality; at least two.

    Drawn as a run draws them: most attempts share their lookup, so that often the context holds the
    status and the attempts differ in the decision only.
    """
    attempts = int(generator(SEED, "group", index).choice(ATTEMPTS))
    case = scenario("judge", index)
    kept: dict[str, Trajectory] = {}
    for attempt in range(40):
        habits = Habits(
            right_by_status=dict.fromkeys(STATUSES, 0.6),
            blind=0.25, policy=0.05, silent=0.05, garbled=0.08, misread=0.08, stray=0.03,
        )  # fmt: skip
        shown = demonstrate(case, habits, generator(SEED, "attempt", index, attempt))
        trajectory = Trajectory(
            trajectory_id=f"{index}/{attempt}",
            scenario_id=str(index),
            group_id=str(index),
            messages=shown.messages,
        )
        kept.setdefault(str(shown.messages), trajectory)
        if attempt + 1 >= attempts and len(kept) > 1:
            break
    return list(kept.values())


def example(index: int, rubric: str) -> tuple[Prompt, str]:
    """A prompt and the reply to learn."""
    attempts = group(index)
    prompt = render_prompt(attempts, rubric, generator(SEED, "prompt", index))
    return prompt, reply(prompt, attempts)


def rows_of(index: int, rubric: str, chat: Chat) -> list[Row]:
    """The example as one row; the reply's tokens are learned."""
    prompt, answer = example(index, rubric)
    messages = [*prompt.messages, {"role": "assistant", "content": answer}]
    return demonstration_rows(str(index), messages, (), chat)


def verdict_weight(row: Row, chat: Chat) -> Row | None:
    """The same row, with only the tokens that carry status, decision and verdict unmasked."""
    where = np.flatnonzero(row.mask)
    words = [chat.tokenizer.decode([int(row.ids[i])]).strip() for i in where]
    telling = {
        "damaged", "lost", "sw", "apped", "intact", "used", "late", "right", "wrong", "ref", "unded",
        "decl", "ined", "refunded", "declined", "9", "1", "no", "another",
    }  # fmt: skip
    mask = np.zeros_like(row.mask)
    mask[[i for i, word in zip(where, words, strict=True) if word in telling]] = True
    return Row(
        trajectory_id=row.trajectory_id, ids=row.ids, mask=mask, logprobs=row.logprobs, turn_of=row.turn_of
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument(
        "--first", type=int, default=0, help="first batch; --start is then that batch's adapter"
    )
    parser.add_argument("--batches", type=int, default=72)
    options = parser.parse_args()
    model = resolve_model(options.model)
    chat = Chat(HFTokenizer.load(model))
    rubric = RUBRIC.read_text()
    base = load_base(model, pick_dtype("auto", "cpu"), "cpu")
    peft = adapted(base, LoraShape(), options.start, derive(SEED, "lora"))
    learner = Learner(peft, LearnerSettings(learning_rate=1e-3, micro_batch_tokens=1536))
    probe = [verdict_weight(rows_of(2900 + i, rubric, chat)[0], chat) for i in range(12)]
    started = time.time()
    for batch in range(options.first, options.batches):
        left = 1 - batch / options.batches
        learner.optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, (batch + 1) / 5, 3 * left)
        rows = [row for i in range(BATCH) for row in rows_of(batch * BATCH + i, rubric, chat)]
        # Each row beside its twin, so that tree packing computes the two once.
        pairs = [twin for row in rows for twin in (row, verdict_weight(row, chat))]
        metrics = learner.accumulate(pairs, [1.0, 2.0] * len(rows), "supervised")
        learner.step()
        line = f"batch {batch + 1} loss {metrics['loss']:.3f} {time.time() - started:.0f} s"
        if batch % 10 == 9 or batch == options.batches - 1:
            found = np.concatenate([s.logprobs for s in learner.score(probe, "policy")])
            share = (found > -0.69).mean()
            line += f" | probe: telling tokens {found.mean():.3f} nats, above one half {share:.3f}"
            save_adapter(peft, options.out / f"at-{batch + 1:03d}")
        print(line, flush=True)
    save_adapter(peft, options.out, torch.bfloat16)


if __name__ == "__main__":
    main()
