"""What vLLM is asked to say of a prompt's own tokens, and what it says. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import EngineError

OVER_ZERO = 1e-5
"""How far above 0 rounding may take a log-prob."""


def scoring_request(model: str, ids: Sequence[int], others: int = 0) -> dict[str, Any]:
    """The body of a request for the log-prob of every token of a prompt, and of so many likely `others`.

    Such a request reads nothing from vLLM's prefix cache, which holds no log-probs; one token must be
    sampled, so the prompt is shorter than the context. Temperature and the like touch that token alone.
    """
    return {
        "model": model,
        "prompt": [int(token) for token in ids],
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": others,
    }


def prompt_logprobs(
    answer: Mapping[str, Any], model: str, name: str, ids: Sequence[int]
) -> NDArray[np.float64]:
    """log p of each token of the prompt `ids` given those before it, float64 [T]; nan for the first.

    Raises EngineError for an answer by another model than `model`, which was asked, of another length,
    without one of the tokens, or with a number that is no log-prob.
    """
    places = listed(answer, model, name, len(ids))
    try:
        found = [place[int(token)] for place, token in zip(places, ids[1:], strict=True)]
    except KeyError as error:
        raise EngineError(f"{name}: vLLM's log-probs of the prompt lack token {error}") from error
    values = np.array([np.nan, *found])
    if not (np.isfinite(values[1:]).all() and (values[1:] <= OVER_ZERO).all()):
        raise EngineError(f"{name}: vLLM gave a number that is no log-prob: {values[1:].max()}")
    return values.clip(max=0.0)


def listed(answer: Mapping[str, Any], model: str, name: str, length: int) -> list[dict[int, float]]:
    """Log-probs by token at each place of a prompt of `length` tokens but the first.

    Raises EngineError for an answer by another model, or of another length.
    """
    if answer.get("model") != model:
        raise EngineError(
            f"{name}: vLLM answered as {answer.get('model')!r}, not as {model!r}, the one asked"
        )
    try:
        places = answer["choices"][0]["prompt_logprobs"][1:]
        found = [{int(token): float(one["logprob"]) for token, one in place.items()} for place in places]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"{name}: vLLM's answer lacks log-probs of the prompt ({error!r}); 0.32 gives them"
        ) from error
    if len(found) != length - 1:
        raise EngineError(f"{name}: vLLM gave log-probs of {len(found) + 1} tokens, not of {length}")
    return found
