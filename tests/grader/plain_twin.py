"""The grades of Progress Advantage by brute force, as its authors' scripts compute them.

One sequence at a time, a whole model for policy and one for reference, a full log-softmax, each model's
log-probs added up over a step's tokens first and subtracted after. Too long: the last tokens are kept.
"""

import json
from dataclasses import dataclass

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

AGGREGATE = {
    "sum": np.sum,
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "last": lambda values: values[-1],
}


@dataclass
class Pair:
    """Two models in memory and their tokenizer."""

    policy: object
    reference: object
    tokenizer: object


def load_pair(model, adapter, dtype=torch.float32):
    base = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    trained = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    trained = PeftModel.from_pretrained(trained, str(adapter)).merge_and_unload().eval()
    return Pair(trained, base, AutoTokenizer.from_pretrained(model))


def spans_of(messages):
    """(text, is an action) of each message."""
    spans = []
    for place, message in enumerate(messages):
        before = "\n" if place else ""
        content = message.get("content") or ""
        if message["role"] != "assistant":
            spans.append((before + "[" + message["role"] + "]: " + content, False))
            continue
        calls = []
        for call in message.get("tool_calls") or []:
            arguments = json.loads(call["function"]["arguments"])
            calls.append("tool_call(" + call["function"]["name"] + ", " + str(arguments) + ")")
        body = content + "\n" + "\n".join(calls) if content or calls else "[assistant action]"
        spans.append((before + "[assistant]: " + body, True))
    return spans


def encode(tokenizer, messages, max_length):
    """Ids, and for each action the indices of its tokens among them, after truncation from the left."""
    ids = [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []
    actions = []
    for text, acts in spans_of(messages):
        cut = tokenizer(text, add_special_tokens=False)["input_ids"]
        if acts:
            actions.append(list(range(len(ids), len(ids) + len(cut))))
        ids += cut
    dropped = max(0, len(ids) - max_length)
    return ids[dropped:], [[i - dropped for i in action] for action in actions]


@torch.no_grad()
def logprobs(model, ids):
    """Log-prob of each token but the first, which gets nan.

    The softmax is in float64: torch's in float32 is several 1e-6 high on average, which a long step sums up.
    """
    logits = model(input_ids=torch.tensor([ids])).logits[0].double()
    table = torch.log_softmax(logits, dim=-1)
    chosen = table[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return np.concatenate([[np.nan], chosen.double().numpy()])


def step_grades(pair, messages, max_length, how):
    """One grade an action; None where some of its tokens were cut off or have nothing before them."""
    ids, actions = encode(pair.tokenizer, messages, max_length)
    policy, reference = logprobs(pair.policy, ids), logprobs(pair.reference, ids)
    return {
        name: [
            None if min(action) < 1 else aggregate(policy[action]) - aggregate(reference[action])
            for action in actions
        ]
        for name, aggregate in ((name, AGGREGATE[name]) for name in how)
    }
