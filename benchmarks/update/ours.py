"""Our side as a process: the learner makes one update whenever it is told to.

Reads one JSON job from the first line of standard input and then a command a line; see process.py.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sides.memory import held_bytes, peak_bytes
from benchmarks.update.shapes import SHAPES, Update
from strop.engines.opening import prepare

prepare()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from strop.engines.local.learner import Learner, LearnerSettings  # noqa: E402
from strop.engines.local.losses.tokens import LossSettings  # noqa: E402
from strop.engines.local.weights import (  # noqa: E402
    LoraShape,
    adapted,
    adapter_tensors,
    load_base,
    save_adapter,
)
from strop.trajectory.tokens import Row  # noqa: E402

MOVED_BY = 0.1
"""Standard deviation of the old log-probs about the policy's, in nats: some ratios get clipped."""
WEIGHT = 0.02
"""Standard deviation of the adapter's B, which a fresh adapter has at zero."""


class Ours:
    """The learner on one update's rows."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job = job
        adapter = Path(job["adapter"])
        dtype = torch.bfloat16 if job["dtype"] == "bfloat16" else torch.float32
        shape = LoraShape(rank=job["rank"], alpha=2 * job["rank"], first_layer=job["first_layer"])
        base = load_base(job["model"], dtype, "cpu")
        self.model = adapted(base, shape, adapter if adapter.exists() else None, seed=0)
        loss = LossSettings(clip_low=job["clip_low"], clip_high=job["clip_high"], dual_clip=job["dual_clip"])
        settings = LearnerSettings(
            learning_rate=job["learning_rate"],
            betas=tuple(job["betas"]),
            max_grad_norm=job["max_grad_norm"],
            micro_batch_tokens=job["batch"],
            loss=loss,
        )
        self.learner = Learner(self.model, settings)

    def prepare(self, update: Update) -> None:
        """Write the adapter that both sides start from, and the update with its old log-probs."""
        rng = np.random.default_rng(0)
        with torch.no_grad():
            for name, tensor in adapter_tensors(self.model, "policy").items():
                if "lora_B" in name:
                    tensor.copy_(torch.from_numpy(WEIGHT * rng.standard_normal(tuple(tensor.shape))))
        save_adapter(self.model, Path(self.job["adapter"]))
        scored = self.learner.score(update.rows, "policy")
        old = []
        for row, score in zip(update.rows, scored, strict=True):
            logprobs = np.zeros(len(row.ids))
            noise = MOVED_BY * rng.standard_normal(len(score.logprobs))
            logprobs[row.mask] = np.minimum(score.logprobs + noise, 0)
            old.append(logprobs)
        save_update(Path(self.job["rows"]), update, old)

    def update(self, rows: Sequence[Row], advantages: Sequence[float]) -> Mapping[str, float]:
        """One update; wall and processor seconds, the loss before it and the norm of its gradient."""
        self.learner.on_policy = False
        wall, used = time.perf_counter(), time.process_time()
        found = self.learner.accumulate(rows, advantages)
        stepped = self.learner.step()
        return {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - used,
            "loss": found["loss"],
            "grad_norm": stepped["grad_norm"],
        }

    def keep(self, name: str) -> None:
        """Write the gradients that the next optimizer step is given, and the weights that it leaves."""
        trained = {n: t for n, t in adapter_tensors(self.model, "policy").items() if t.requires_grad}

        def gradients(*_: object) -> None:
            before.remove()
            found = {n: t.grad.float().contiguous() for n, t in trained.items() if t.grad is not None}
            save_file(found, f"{name}.gradients")

        def weights(*_: object) -> None:
            after.remove()
            save_file({n: t.detach().float().contiguous() for n, t in trained.items()}, f"{name}.weights")

        before = self.learner.optimizer.register_step_pre_hook(gradients)
        after = self.learner.optimizer.register_step_post_hook(weights)


def save_update(path: Path, update: Update, old: Sequence[Any]) -> None:
    """The rows as padded arrays [rows, longest], which the peer reads without strop."""
    longest = max(len(row.ids) for row in update.rows)

    def padded(values: Sequence[Any]) -> Any:
        return np.stack([np.pad(v, (0, longest - len(v))) for v in values])

    np.savez(
        path,
        ids=padded([row.ids for row in update.rows]),
        mask=padded([row.mask for row in update.rows]),
        logprobs=padded(old),
        lengths=np.array([len(row.ids) for row in update.rows]),
        prompts=update.prompts,
        advantages=update.advantages,
    )


def load_rows(path: Path) -> tuple[list[Row], list[float]]:
    """The rows and their advantages as `save_update` wrote them."""
    with np.load(path) as held:
        rows = [
            Row(
                trajectory_id="row",
                ids=ids[:length],
                mask=mask[:length],
                logprobs=logprobs[:length],
                turn_of=np.where(mask[:length], 0, -1),
            )
            for ids, mask, logprobs, length in zip(
                held["ids"], held["mask"], held["logprobs"], held["lengths"], strict=True
            )
        ]
        return rows, held["advantages"].tolist()


def main() -> None:
    job = json.loads(sys.stdin.readline())
    side = Ours(job)
    if job["do"] == "prepare":
        update = SHAPES[job["shape"]](job["groups"], job["attempts"])
        side.prepare(update)
        print(json.dumps({"tokens": update.tokens, "unique": update.unique}), flush=True)
        return
    rows, advantages = load_rows(Path(job["rows"]))
    loaded = {"held": held_bytes(), "peak": peak_bytes(), "versions": {"torch": torch.__version__}}
    print(json.dumps(loaded), flush=True)
    if job["kept"]:
        side.keep(job["kept"])
    for line in sys.stdin:
        if line.strip() != "update":
            break
        found = side.update(rows, advantages)
        print(json.dumps({**found, "peak": peak_bytes(), "held": held_bytes()}), flush=True)


if __name__ == "__main__":
    main()
