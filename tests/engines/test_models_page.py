"""docs/models.md says of a few models what they really are when opened."""

import re
from pathlib import Path

import pytest

from families import ALONE, MASKED, PACKED

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text(encoding="utf-8")
NAMES = {
    "llama": "Llama",
    "sliding": "Mistral",
    "qwen2": "Qwen 2 and 2.5",
    "qwen3": "Qwen 3",
    "qwen3_moe": "Qwen 3 MoE",
    "gemma2": "Gemma 1 to 3",
    "cohere": "Cohere 1 and 2",
    "granite": "Granite",
    "gpt2": "GPT-2",
    "gpt_oss": "GPT-OSS",
    "mamba": "Mamba",
    "lfm2": "LFM 2",
    "qwen3_next": "Qwen 3 Next",
    "llama4": "Llama 4",
    "bloom": "BLOOM",
}


@pytest.mark.parametrize("name", list(NAMES))
def test_a_model_stands_in_the_row_of_what_it_does(name: str) -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("|")]
    (learner,) = [row[2].strip() for row in rows if NAMES[name] in re.split("[,;] ", row[1].strip())]
    expected = {
        "shared prefixes once": name in PACKED,
        "shared prefixes once, with a dense mask": name in MASKED,
        "row by row": name in ALONE,
    }
    assert expected[learner]
