"""The peer's process: TRL's GRPOTrainer from the same adapters, on the same prompts in the same order.

Runs under the Python of an environment that holds trl; needs no strop. Reads a JSON job and answers with a
line a seed: the mean reward of each step.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import trl
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from studies.learning_curve.task import ATTEMPTS, GROUPS, LENGTH, Setting, prompts, reward


def trainer_of(model: str, adapter: str, setting: Setting, seed: int, seen: list[list[float]]) -> GRPOTrainer:
    """The trainer; `seen` gets the rewards of each batch."""

    def scored(completions: list[str], **_: Any) -> list[float]:
        found = [reward(text) for text in completions]
        seen.append(found)
        return found

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="strop-peer-"),
        use_cpu=True,
        bf16=False,
        seed=seed,
        per_device_train_batch_size=ATTEMPTS * GROUPS,
        gradient_accumulation_steps=1,
        num_generations=ATTEMPTS,
        shuffle_dataset=False,
        max_steps=setting.steps,
        max_completion_length=LENGTH,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        learning_rate=setting.learning_rate,
        lr_scheduler_type="constant",
        adam_beta1=setting.betas[0],
        adam_beta2=setting.betas[1],
        weight_decay=0.0,
        max_grad_norm=setting.max_grad_norm,
        loss_type="dapo",
        scale_rewards="group",
        beta=0.0,
        epsilon=setting.clip_low,
        epsilon_high=setting.clip_high,
        delta=setting.dual_clip,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    data = [prompt for step in range(setting.steps) for prompt in prompts(step)]
    return GRPOTrainer(
        model=PeftModel.from_pretrained(base, adapter, is_trainable=True),
        reward_funcs=scored,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": data}),
        processing_class=AutoTokenizer.from_pretrained(model),
    )


def main() -> None:
    # What libraries print must not stand among the answers.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    job = json.loads(sys.stdin.readline())
    setting = Setting(**{**job["setting"], "betas": tuple(job["setting"]["betas"])})
    for seed, adapter in job["adapters"].items():
        seen: list[list[float]] = []
        trainer_of(job["model"], adapter, setting, int(seed), seen).train()
        means = [sum(batch) / len(batch) for batch in seen]
        answer.write(json.dumps({"seed": int(seed), "rewards": means, "version": trl.__version__}) + "\n")
        answer.flush()


if __name__ == "__main__":
    main()
