"""Tiny random reward models of every kind, and what transformers itself says of a conversation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoTokenizer, Qwen2Model, Qwen2PreTrainedModel

from local_model import SIZES, write_tokenizer
from strop.trajectory.model import Trajectory

EXTRA = "<extra_0>"
SAID = [
    ("system", "be brief"),
    ("user", "where is it?"),
    ("assistant", "let me see"),
    ("user", "well?"),
    ("assistant", "In the hall."),
    ("user", "sure"),
    ("assistant", "yes, quite sure"),
]


class Qwen2ForProcessRewardModel(Qwen2PreTrainedModel):
    """The published class's shape: a body, and linear, ReLU, linear to two labels."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = Qwen2Model(config)
        size = config.hidden_size
        self.score = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, config.num_labels))
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.score(self.model(input_ids=input_ids).last_hidden_state)


class Qwen2ForRewardModel(Qwen2ForProcessRewardModel):
    """Qwen2.5-Math's model of whole conversations: one output, at the last token."""


def built(name: str, config: str, seed: int = 1, **fields: Any) -> Any:
    """A random model of a transformers class, or of the one above; biases and norms random too."""
    torch.manual_seed(seed)
    kind = globals().get(name) or getattr(transformers, name)
    model = kind(getattr(transformers, config)(**{**SIZES, "bos_token_id": 1, "eos_token_id": 2, **fields}))
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn(parameter.shape))
    return model.eval()


def saved(model: Any, folder: Path, *, extra: bool = False, template: bool = True, **config: Any) -> str:
    """Save it with the tokenizer of letters, `extra` with a token for the end of steps."""
    model.save_pretrained(folder)
    write_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if extra:
        tokenizer.add_special_tokens({"additional_special_tokens": [EXTRA]})
    if not template:
        tokenizer.chat_template = None
        (folder / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)
    kept = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(kept | config))
    return str(folder)


def chat(said: Sequence[tuple[str, str]] = SAID, name: str = "t") -> Trajectory:
    """A conversation of plain texts."""
    return Trajectory(
        trajectory_id=name,
        scenario_id="s",
        group_id="s",
        messages=tuple({"role": role, "content": content} for role, content in said),
    )


def template_ids(folder: str, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """transformers' own ids of a conversation, no reply awaited."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids: list[int] = tokenizer.apply_chat_template(list(messages), tokenize=True, return_dict=False)
    return ids


@torch.no_grad()
def at_ends(model: Any, folder: str, trajectory: Trajectory) -> torch.Tensor:
    """[K, labels] logits of each conversation that ends with an assistant message, one call each."""
    spoken = [i for i, m in enumerate(trajectory.messages) if m["role"] == "assistant"]
    prefixes = [template_ids(folder, trajectory.messages[: i + 1]) for i in spoken]
    return torch.cat([model(input_ids=torch.tensor([ids])).logits for ids in prefixes])


def marked_ids(folder: str, trajectory: Trajectory, marker: int) -> tuple[list[int], list[int]]:
    """Ids of the conversation by the letters' template with a marker after each step, and where those are."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids: list[int] = []
    places = []
    last = max(i for i, m in enumerate(trajectory.messages) if m["role"] == "assistant")
    for message in trajectory.messages[: last + 1]:
        ids += tokenizer.encode(f"<s>{message['role']}: {message['content']}", add_special_tokens=False)
        if message["role"] == "assistant":
            places.append(len(ids))
            ids.append(marker)
        ids += tokenizer.encode("</s>", add_special_tokens=False)
    return ids, places
