"""The peer's side: grades as the paper's scripts compute them, on plain transformers.

Two whole models are loaded. One sequence at a time, logits cast to float32, a full log-softmax, each model's
log-probs added up over a step's tokens first, subtracted after, and given a token. Its baselines
(top-20 means) are left out.
"""

import json
import sys
import time
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.sides.memory import peak_bytes


def spans(messages: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Text of each message, and whether it is an action."""
    out = []
    for place, message in enumerate(messages):
        before, content = "\n" if place else "", message.get("content") or ""
        if message["role"] != "assistant":
            out.append((f"{before}[{message['role']}]: {content}", False))
            continue
        functions = [call["function"] for call in message.get("tool_calls") or []]
        calls = "\n".join(f"tool_call({f['name']}, {json.loads(f['arguments'])!r})" for f in functions)
        said = f"{content}\n{calls}" if content or calls else "[assistant action]"
        out.append((f"{before}[assistant]: {said}", True))
    return out


def encoded(tokenizer: Any, messages: list[dict[str, Any]], length: int) -> tuple[list[int], list[range]]:
    """Ids and the places of each action that is whole among the last `length`."""
    ids = [tokenizer.bos_token_id]
    actions = []
    for text, acts in spans(messages):
        cut = tokenizer(text, add_special_tokens=False)["input_ids"]
        if acts:
            actions.append(range(len(ids), len(ids) + len(cut)))
        ids += cut
    dropped = max(0, len(ids) - length)
    moved = [range(a.start - dropped, a.stop - dropped) for a in actions]
    return ids[dropped:], [a for a in moved if a.start > 0]


def whole(name: str, adapter: str, dtype: torch.dtype) -> Any:
    """A model with an adapter folded in, or the bare one."""
    model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    return (
        model if adapter == "base" else PeftModel.from_pretrained(model, adapter).merge_and_unload()
    ).eval()


@torch.inference_mode()
def logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    """Log-prob of each token but the first."""
    table = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits.float(), dim=-1)[0]
    return table[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def main() -> None:
    job = json.loads(sys.stdin.readline())
    dtype = getattr(torch, job["dtype"])
    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    policy, reference = (whole(job["model"], job[name], dtype) for name in ("adapter", "reference"))
    with open(job["file"], encoding="utf-8") as file:
        chats = [json.loads(line)["messages"] for line in file]
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        count = int(line) if line.strip() else None
        began, cpu = time.perf_counter(), time.process_time()
        total, grades = 0, []
        for chat in chats[:count]:
            ids, actions = encoded(tokenizer, chat, job["length"])
            total += len(ids)
            ours, theirs = logprobs(policy, ids), logprobs(reference, ids)
            grades.append(
                [
                    float(ours[a.start - 1 : a.stop - 1].sum() - theirs[a.start - 1 : a.stop - 1].sum())
                    / len(a)
                    for a in actions
                ]
            )
        answer = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu,
            "tokens": total,
            "peak": peak_bytes(),
            "grades": grades,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
