"""The peer's process: TRL's GRPOTrainer makes one update whenever it is told to. Needs no strop.

Runs under the Python of an environment that holds trl (see benchmarks/train_step.py). The trainer's own
`train()` runs: its micro-batches, `_compute_loss`, backward, gradient clipping, optimizer. Two things are put
in: the batch that its rollout would have made, and a callback that waits before each step for a line on
standard input and answers after it. Its first line of input is a JSON job; see process.py.
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

ENOUGH_STEPS = 100_000


class Fed(GRPOTrainer):
    """The trainer with a rollout that is already there. Sums the losses of an update's micro-batches."""

    def feed(self, batch: dict[str, torch.Tensor]) -> None:
        self.batch, self.summed = batch, 0.0

    def _generate_and_score_completions(self, _: Any) -> dict[str, torch.Tensor]:
        return dict(self.batch)

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        self.summed += float(loss.detach())
        return loss


class OnCommand(TrainerCallback):
    """Waits for "update" before each step, answers after it; anything else ends the training."""

    def __init__(self, trainer: Fed, answer: Any) -> None:
        self.trainer, self.answer = trainer, answer

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if sys.stdin.readline().strip() != "update":
            self.answer.close()
            os._exit(0)
        self.trainer.summed = 0.0
        self.wall, self.used = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        found = {
            "seconds": time.perf_counter() - self.wall,
            "cpu_seconds": time.process_time() - self.used,
            "loss": self.trainer.summed,
        }
        say(self.answer, {**found, "peak": peak_bytes(), "held": held_bytes()})


def batch_of(path: Path) -> dict[str, torch.Tensor]:
    """The update as `_generate_and_score_completions` gives it: prompts padded left, completions right."""
    held = np.load(path)
    lengths, prompts = held["lengths"], held["prompts"]
    before, after = int(prompts.max()), int((lengths - prompts).max())
    count = len(lengths)
    prompt_ids = np.zeros((count, before), dtype=np.int64)
    prompt_mask = np.zeros((count, before), dtype=np.int64)
    completion_ids = np.zeros((count, after), dtype=np.int64)
    completion_mask = np.zeros((count, after), dtype=np.int64)
    tool_mask = np.zeros((count, after), dtype=np.int64)
    old = np.zeros((count, after), dtype=np.float32)
    for row, (length, prompt) in enumerate(zip(lengths, prompts)):  # noqa: B905
        rest = slice(0, length - prompt)
        prompt_ids[row, before - prompt :] = held["ids"][row, :prompt]
        prompt_mask[row, before - prompt :] = 1
        completion_ids[row, rest] = held["ids"][row, prompt:length]
        completion_mask[row, rest] = 1
        tool_mask[row, rest] = held["mask"][row, prompt:length]
        old[row, rest] = held["logprobs"][row, prompt:length]
    arrays = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": held["advantages"].astype(np.float32),
        "old_per_token_logps": old,
    }
    if not (tool_mask == completion_mask).all():
        arrays["tool_mask"] = tool_mask
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    batch["num_items_in_batch"] = torch.tensor(int(tool_mask.sum()))
    return batch


def trainer_of(job: dict[str, Any], count: int) -> Fed:
    """The trainer over the same model and adapter; only the blocks from `first_layer` on train."""
    base = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
    model = PeftModel.from_pretrained(base, job["adapter"], is_trainable=True)
    for name, parameter in model.named_parameters():
        layer = next((int(part) for part in name.split(".") if part.isdecimal()), 0)
        parameter.requires_grad_("lora_" in name and layer >= job["first_layer"])
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="strop-peer-"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=job["batch"],
        gradient_accumulation_steps=count // job["batch"],
        num_generations=job["attempts"],
        max_steps=ENOUGH_STEPS,
        max_completion_length=1024,
        learning_rate=job["learning_rate"],
        lr_scheduler_type="constant",
        adam_beta1=job["betas"][0],
        adam_beta2=job["betas"][1],
        weight_decay=0.0,
        max_grad_norm=job["max_grad_norm"],
        loss_type="dapo",
        beta=0.0,
        epsilon=job["clip_low"],
        epsilon_high=job["clip_high"],
        delta=job["dual_clip"],
        gradient_checkpointing=job["checkpointing"],
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    return Fed(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["-"] * count}),
        processing_class=AutoTokenizer.from_pretrained(job["model"]),
    )


def keep(trainer: Fed, path: str) -> None:
    """Write the gradients that the first optimizer step is given, and the weights that it leaves.

    By PEFT's names without the adapter's.
    """
    trained = {
        name.replace(".default.", "."): parameter
        for name, parameter in trainer.model.named_parameters()
        if parameter.requires_grad
    }

    class Keep(TrainerCallback):
        def on_pre_optimizer_step(self, _: Any, state: Any, __: Any, **___: Any) -> None:
            if state.global_step == 0:
                found = {n: p.grad.float().contiguous() for n, p in trained.items() if p.grad is not None}
                save_file(found, f"{path}.gradients")

        def on_optimizer_step(self, _: Any, state: Any, __: Any, **___: Any) -> None:
            if state.global_step == 0:
                found = {n: p.detach().float().contiguous() for n, p in trained.items()}
                save_file(found, f"{path}.weights")

    trainer.add_callback(Keep())


def peak_bytes() -> int:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def held_bytes() -> int:
    """The memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def say(answer: Any, found: dict[str, Any]) -> None:
    answer.write(json.dumps(found) + "\n")
    answer.flush()


def main() -> None:
    # What libraries print must not stand among the answers.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    batch = batch_of(Path(job["rows"]))
    trainer = trainer_of(job, len(batch["advantages"]))
    trainer.feed(batch)
    if job["kept"]:
        keep(trainer, job["kept"])
    trainer.add_callback(OnCommand(trainer, answer))
    versions = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    say(answer, {"held": held_bytes(), "peak": peak_bytes(), "versions": versions})
    trainer.train()


if __name__ == "__main__":
    main()
