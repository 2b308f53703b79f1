"""Two turns of many conversations: our sampler against transformers' generate.

    python -m benchmarks.decode [--json] [--pairs 5] [--rows 32]

Both sample the same number of tokens from the same model in the same number format, after the same
prompts: a shared system prompt, a question each, a tool result each. generate computes a padded batch
and, at the second turn, the whole conversation again, as trainers that call it do; our sampler keeps
what it has computed.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import Outcome
from strop.engines.embedded import resolve_model
from strop.engines.local.sampler import LocalSampler
from strop.engines.local.weights import load_base, pick_dtype, share
from strop.inference.sampling import SamplingParams
from strop.seeds import generator

SHARED, QUESTION, RESULT, REPLY = 140, 25, 30, 28
LIMIT = 1.5
NO_END: frozenset[int] = frozenset()


def prompts(rows: int, pair: int) -> tuple[list[list[int]], list[list[int]]]:
    """Random ids: the first prompts, and what each conversation gets after its first reply."""
    rng = generator(0, "decode", pair)
    shared = rng.integers(100, 40000, SHARED).tolist()
    first = [[*shared, *rng.integers(100, 40000, QUESTION).tolist()] for _ in range(rows)]
    return first, [rng.integers(100, 40000, RESULT).tolist() for _ in range(rows)]


def ours(model: Any, first: Sequence[list[int]], second: Sequence[list[int]]) -> float:
    """Seconds of both turns with our sampler."""
    sampler = LocalSampler("cpu", slots=len(first), max_length=512)
    sampler.serve("policy@0", 0, share(model), eos_ids=NO_END, decode=str)
    sampler.route("policy", "policy@0")
    names = [str(index) for index in range(len(first))]

    async def conversation(index: int) -> None:
        params = SamplingParams(max_tokens=REPLY, seed=index)
        reply = await sampler.sample(first[index], params, model="policy", session=names[index])
        follow = [*first[index], *reply.ids, *second[index]]
        await sampler.sample(follow, params, model="policy", session=names[index])
        sampler.shut(names[index])

    async def everything() -> None:
        sampler.open(names)
        await asyncio.gather(*map(conversation, range(len(first))))

    began = time.perf_counter()
    asyncio.run(everything())
    seconds = time.perf_counter() - began
    sampler.close()
    return seconds


@torch.inference_mode()
def theirs(model: Any, first: Sequence[list[int]], second: Sequence[list[int]]) -> float:
    """Seconds of both turns with generate."""
    options = {"do_sample": True, "max_new_tokens": REPLY, "min_new_tokens": REPLY, "pad_token_id": 0}
    began = time.perf_counter()
    one = model.generate(torch.tensor(np.array(first)), **options)
    two = torch.cat([one, torch.tensor(np.array(second))], dim=1)
    model.generate(two, **options)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    dtype = pick_dtype("auto", "cpu")
    model = load_base(resolve_model(options.model), dtype, "cpu")
    model.generation_config.eos_token_id = None
    pairs = [prompts(options.rows, pair) for pair in range(options.pairs + 1)]
    timed = [(ours(model, *pair), theirs(model, *pair)) for pair in pairs]
    outcome = Outcome(
        name="decode",
        ours=[mine for mine, _ in timed[1:]],
        theirs=[other for _, other in timed[1:]],
        limit=LIMIT,
        details={"rows": options.rows, "sampled_tokens": 2 * REPLY * options.rows, "dtype": str(dtype)},
    )
    print(
        outcome.to_json()
        if options.json
        else f"decode: {outcome.ratio:.2f} times generate\n{outcome.to_json()}"
    )


if __name__ == "__main__":
    main()
