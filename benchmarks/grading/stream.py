"""Ten thousand short trajectories through `strop grade`'s own code on a small random model: what is held."""

import json
import shutil
import sys
from pathlib import Path

from benchmarks.sides.memory import held_bytes
from strop.app.grading import GradeJob, grade_file

VOCABULARY = 49152


def small_model(tokenizer_of: Path, folder: Path) -> Path:
    """A random Llama of two thin layers with that model's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (tokenizer_of / name).is_file():
            shutil.copy(tokenizer_of / name, folder / name)
    return folder


def main() -> None:
    job = json.loads(sys.stdin.readline())
    held: dict[int, int] = {}
    folder = Path(job["folder"])
    policy, reference = (small_model(Path(job["model"]), folder / name) for name in ("policy", "reference"))

    def watch(stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:
        del total, step, steps
        if stage == "grading" and done in job["at"]:
            held[done] = held_bytes()

    said = grade_file(
        GradeJob(
            file=Path(job["file"]),
            out=folder / "grades.jsonl",
            policy=str(policy),
            references=(str(reference),),
            dtype="float32",
            progress=watch,
        )
    )
    print(json.dumps({"held": held, "graded": said["graded"], "seconds": said["seconds"]}), flush=True)


if __name__ == "__main__":
    main()
