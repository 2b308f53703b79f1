"""What vLLM 0.32.0 says of prompts of a tiny model, as recorded in recorded/vllm_0_32_prompts.json."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop.engines.vllm.prompt_scores import listed, prompt_logprobs, scoring_request
from strop.errors import EngineError

RECORDED = json.loads((Path(__file__).parent / "recorded/vllm_0_32_prompts.json").read_text(encoding="utf-8"))
PROMPT = [1, 3, 9, 4]
ROUNDING = 1e-5
"""Nats, in float32: one model in two passes of other lengths."""


def sampled() -> tuple[list[int], list[float]]:
    """Token ids and log-probs of the completion that was sampled behind PROMPT."""
    choice = RECORDED["sampled"]["body"]["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


IDS = [*PROMPT, *sampled()[0]]


def answer(name: str = "prompt") -> dict[str, Any]:
    return copy.deepcopy(RECORDED[name]["body"])


def read(body: dict[str, Any]) -> Any:
    return prompt_logprobs(body, body["model"], "policy@1", IDS)


def test_a_prompts_log_probs_are_those_with_which_its_end_was_sampled() -> None:
    found = read(answer())
    assert found.dtype == np.float64
    assert np.isnan(found[0])
    assert found[len(PROMPT) :] == pytest.approx(sampled()[1], abs=ROUNDING)


def test_the_likeliest_others_change_nothing() -> None:
    """vLLM lists them beside the prompt's own token, which need not be among them."""
    assert read(answer("prompt_others")) == pytest.approx(read(answer()), abs=ROUNDING, nan_ok=True)
    places = listed(answer("prompt_others"), answer()["model"], "policy@1", len(IDS))
    assert {len(place) for place in places} == {3, 4}


def test_the_base_says_something_else() -> None:
    apart = np.abs(read(answer("prompt_base")) - read(answer()))[1:]
    assert apart.max() > 100 * ROUNDING


def without(body: dict[str, Any], at: int) -> dict[str, Any]:
    """The answer with another token's log-prob at one place."""
    place = body["choices"][0]["prompt_logprobs"][at]
    (token,) = place
    place[str(int(token) + 1)] = place.pop(token)
    return body


def valued(body: dict[str, Any], at: int, value: float) -> dict[str, Any]:
    (place,) = body["choices"][0]["prompt_logprobs"][at].values()
    place["logprob"] = value
    return body


def shorter(body: dict[str, Any]) -> dict[str, Any]:
    body["choices"][0]["prompt_logprobs"].pop()
    return body


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({**answer(), "model": "base"}, "vLLM answered as 'base', not as"),
        ({**answer(), "choices": []}, "lacks log-probs of the prompt"),
        (RECORDED["sampled"]["body"], "lacks log-probs of the prompt"),
        (shorter(answer()), "gave log-probs of 9 tokens, not of 10"),
        (without(answer(), 2), "lack token 9"),
        (valued(answer(), 3, 2.5), "a number that is no log-prob: 2.5"),
        (valued(answer(), 3, float("nan")), "a number that is no log-prob"),
    ],
)
def test_an_answer_that_cannot_be_right_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        prompt_logprobs(body, answer()["model"], "policy@1", IDS)


def test_rounding_above_zero_is_zero() -> None:
    assert read(valued(answer(), 3, 5e-6))[3] == 0.0


def test_what_is_asked_is_what_was_answered() -> None:
    """The recorded answers were given to these requests."""
    body = scoring_request("policy@1", IDS, 3)
    assert (body["prompt"], body["prompt_logprobs"], body["max_tokens"]) == (IDS, 3, 1)
    assert answer()["usage"]["prompt_tokens"] == len(body["prompt"])
    assert answer()["usage"]["completion_tokens"] == body["max_tokens"]
