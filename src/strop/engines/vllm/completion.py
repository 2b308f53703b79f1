"""What is asked of vLLM's completions endpoint, and what its answer means. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from strop.errors import EngineError, ServerLost
from strop.inference.sampling import Sampled, SamplingParams

SERVER_ERROR = 500
_NO_MASS = -9998.0
"""vLLM writes -9999 for a token that was cut from the distribution."""


def request(
    model: str, prompt: Sequence[int], params: SamplingParams, eos_ids: frozenset[int], most: int
) -> dict[str, Any]:
    """The body of a request for token ids and log-probs. `most`: tokens that fit behind the prompt.

    Everything that a server's own defaults could change is said.
    """
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": min(params.max_tokens, most),
        "temperature": params.temperature,
        # A greedy choice is not cut: its log-probs are of the whole distribution.
        "top_p": params.top_p if params.temperature else 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": params.seed % 2**63,
        "stop": list(params.stop),
        "stop_token_ids": sorted(eos_ids),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "logprobs": params.top_logprobs,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def sampled(answer: Mapping[str, Any], model: str, name: str, version: int, top_logprobs: int) -> Sampled:
    """The completion in an answer, under the name `name` that it has here.

    Raises EngineError for an answer by another model than `model`, which was asked, without token ids, or
    whose ids, tokens and log-probs do not agree.
    """
    if answer.get("model") != model:
        raise EngineError(
            f"{name}: vLLM answered as {answer.get('model')!r}, not as {model!r}, the one asked"
        )
    try:
        choice = answer["choices"][0]
        ids = tuple(int(token) for token in choice["token_ids"])
        said = choice["logprobs"]
        logprobs = tuple(float(value) for value in said["token_logprobs"])
        named = tuple(_token(name) for name in said["tokens"])
        tops = [_top(one, top_logprobs) for one in said["top_logprobs"]] if top_logprobs else []
        finish = str(choice["finish_reason"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EngineError(
            f"{name}: vLLM's answer lacks token ids or log-probs ({error!r}); 0.32 gives them"
        ) from error
    if ids != named or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise EngineError(f"{name}: vLLM's token ids and log-probs do not agree: {len(ids)}, {len(logprobs)}")
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    return Sampled(
        ids=ids,
        logprobs=logprobs,
        finish_reason=finish if finish in ("stop", "length") else "abort",
        version=version,
        model=name,
        top=tuple(tops),
        cached_tokens=int(details.get("cached_tokens") or 0),
    )


def joined(chunks: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The answer that a stream's chunks make up. Raises EngineError for chunks of more than one model.

    ServerLost where one says that the server failed.
    """
    failed = [chunk["error"] for chunk in chunks if "error" in chunk]
    if failed:
        raise ServerLost(f"vLLM failed while it answered: {failed[0]}")
    models = {chunk.get("model") for chunk in chunks}
    if len(models) != 1:
        raise EngineError(f"{name}: vLLM answered as {len(models)} models in one stream")
    parts = [chunk["choices"][0] for chunk in chunks if chunk.get("choices")]
    said = [part["logprobs"] for part in parts if part.get("logprobs")]
    lists = ("tokens", "token_logprobs", "top_logprobs")
    choice = {
        "token_ids": [token for part in parts for token in part.get("token_ids") or ()],
        "logprobs": {key: [one for part in said for one in part[key] or ()] for key in lists},
        "finish_reason": parts[-1]["finish_reason"] if parts else None,
    }
    return {"model": models.pop(), "choices": [choice]}


def pairs(chunk: Mapping[str, Any]) -> list[tuple[int, float]]:
    """The tokens that a chunk adds, with their log-probs."""
    said = (chunk.get("choices") or [{}])[0].get("logprobs") or {"tokens": (), "token_logprobs": ()}
    return [(_token(t), float(lp)) for t, lp in zip(said["tokens"], said["token_logprobs"], strict=True)]


def _token(written: str) -> int:
    return int(written.removeprefix("token_id:"))


def _top(listed: Mapping[str, float], count: int) -> tuple[tuple[int, float], ...]:
    """The most likely tokens; vLLM adds the sampled one, and lists some that were cut."""
    pairs = [(_token(name), float(value)) for name, value in listed.items() if value > _NO_MASS]
    return tuple(sorted(pairs, key=lambda pair: -pair[1])[:count])
