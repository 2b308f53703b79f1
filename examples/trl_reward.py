"""strop's judge as the reward of TRL's GRPOTrainer, on a tiny random model.

    pip install trl
    python examples/trl_reward.py [--steps 3]

Without further settings a planted judge on loopback judges: it likes lower-case letters. For a real one:

    STROP_JUDGE_BASE_URL=https://… STROP_JUDGE_MODEL=… STROP_JUDGE_API_KEY=… python examples/trl_reward.py

The judge in TRL is these lines (`judged_reward` below also keeps what it gives, for the printed check):

    judge = Judge(Endpoint(base_url, api_key, model), rubric=rubric)
    async def reward(prompts, completions, **_):
        return await rewards(judge, prompts, completions, group_size=8)
    trainer = GRPOTrainer(model, reward_funcs=reward, args=GRPOConfig(num_generations=8), train_dataset=data)

Prints what the judge said of each group beside the reward that TRL logged for the step.
"""

import argparse
import os
import string
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strop.judge import Endpoint, Judge
from strop.judge.planted import Planted, PlantedServer
from strop.judge.rewards import rewards

GROUP = 4
GROUPS_A_STEP = 2
RUBRIC = "The attempt that writes the most lower-case letters is the best. Nothing else counts."
TASKS = ("Write in lower case.", "Whisper something.", "Say it quietly.", "No capitals please.")
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


Reward = Callable[..., Awaitable[list[float]]]


def judged_reward(judge: Judge, given: list[list[float]]) -> Reward:
    """TRL's reward function; what it returns is also added to `given`, a list a step."""

    async def reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
        given.append(await rewards(judge, prompts, completions, group_size=GROUP))
        return given[-1]

    return reward


def train(reward: Reward, folder: Path, steps: int) -> list[float]:
    """Train the tiny model and give the mean reward that TRL logged at each step."""
    # Imported here, so that the reward function can be had where TRL is not installed.
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = tiny_model()
    arguments = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=GROUP * GROUPS_A_STEP,
        num_generations=GROUP,
        max_completion_length=24,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
    )
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": task}]} for task in TASKS])
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, args=arguments, train_dataset=data, processing_class=tokenizer
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]


def tiny_model() -> tuple[Any, Any]:
    """A random Llama that writes letters, and its tokenizer, so that the example needs no download."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    pieces = ["<unk>", "<pad>", "</s>", *string.ascii_letters, *" .:"]
    words = Tokenizer(WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    words.pre_tokenizer, words.decoder = Split("", "isolated"), Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    )
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        pad_token_id=1,
        eos_token_id=2,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config), tokenizer


@contextmanager
def chosen_judge() -> Iterator[Judge]:
    """The judge that the environment names, or a planted one that serves as long as the block runs."""
    base_url = os.environ.get("STROP_JUDGE_BASE_URL")
    if base_url is not None:
        key, model = os.environ["STROP_JUDGE_API_KEY"], os.environ["STROP_JUDGE_MODEL"]
        yield Judge(Endpoint(base_url, key, model), rubric=RUBRIC)
        return
    with PlantedServer(Planted(quality=lower_case)) as server:
        yield Judge(Endpoint(server.base_url, "none", "planted"), rubric=RUBRIC)


def lower_case(text: str) -> float:
    """Share of an attempt's characters that are lower-case letters."""
    return sum(letter.islower() for letter in text) / max(len(text), 1)


def report(given: Sequence[Sequence[float]], logged: Sequence[float]) -> bool:
    """Print both sides step by step, and give whether they are the same."""
    same = len(given) == len(logged)
    for step, (numbers, seen) in enumerate(zip(given, logged, strict=False), start=1):
        groups = [numbers[start : start + GROUP] for start in range(0, len(numbers), GROUP)]
        said = " | ".join(" ".join(f"{number:.3f}" for number in group) for group in groups)
        mean = sum(numbers) / len(numbers)
        same = same and abs(mean - seen) < 1e-5
        print(f"step {step}: judge {said}, mean {mean:.5f}; TRL logged {seen:.5f}")
    print(f"TRL trained on the judge's scores: {'yes' if same else 'NO'}")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    given: list[list[float]] = []
    with chosen_judge() as judge, tempfile.TemporaryDirectory() as folder:
        logged = train(judged_reward(judge, given), Path(folder), options.steps)
    totals = judge.ledger.totals()
    print(f"judge: {totals['groups']} groups, {totals['calls']} calls, {totals['outcomes']}")
    return 0 if report(given, logged) else 1


if __name__ == "__main__":
    raise SystemExit(main())
