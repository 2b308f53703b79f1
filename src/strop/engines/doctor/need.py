"""How much memory a plan needs, part by part. Estimates: each formula says what it counts.

What a layer keeps for the backward pass was counted tensor by tensor, and tests hold the formulas against
such counts; what is there besides was measured on the embedded model. All figures are bytes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from strop.engines.doctor.plan import JUDGE_SLOTS, Plan

Stage = Literal["always", "loading", "served", "sampling", "judging", "learning", "publishing"]
LIBRARIES = 550_000_000
"""Python with torch, transformers, peft and all else that a run loads, and oneDNN's kernels."""
CUDA_LIBRARIES = 3_000_000_000
"""In main memory, where CUDA's libraries are loaded too. Not measured."""
CUDA_CONTEXT = 700_000_000
"""On the device. Not measured."""
OWN_BLOCKS = ("llama", "qwen2", "mistral")
HOLES = {"float32": 2.1, "bfloat16": 1.5}
"""On a processor, module by module: what is held over what is kept. Blocks of many sizes leave holes."""
STAYS = 0.5
"""Share of what a stage held that the heap keeps through the next; 0.48 was measured after a rollout."""
RECOMPUTED_HOLES = 0.8
"""Likewise with checkpointing: of each layer, what the heap still holds of it once it was computed again."""
CHUNK = 128
"""Rows of logits that are made at a time."""
PIECE = 2048
"""Tokens of prompts that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One part: what it is, how many bytes, of what it is made, and when it is there."""

    part: str
    bytes: int
    made_of: str
    stage: Stage = "always"


def needs(plan: Plan) -> list[Need]:
    """All parts of a plan in this process, on the device that holds the model."""
    return [*standing(plan), *learning(plan), *serving(plan)]


def total(parts: Sequence[Need], plan: Plan) -> int:
    """What is there always and the largest stage: they follow one another, unless the plan lets them overlap.

    With older policies the next attempts are sampled while a step learns, and an overlapping judge reads
    while others are still sampled. Copies serve from when the weights are loaded on. On a processor, where
    the model is read module by module, the heap keeps part of what a stage has freed, in holes that the next
    does not fit: there half of the smaller one of sampling and learning is added.
    """
    of = Counter[Stage]()
    for part in parts:
        of[part.stage] += part.bytes
    sampling = of["sampling"] + of["judging"] if plan.judged_meanwhile else max(of["sampling"], of["judging"])
    large, small = sorted((sampling, of["learning"]), reverse=True)
    in_holes = STAYS * small if plan.device == "cpu" and not own_blocks(plan) else 0
    working = large + (small if plan.at_once else round(in_holes))
    return of["always"] + max(of["loading"], of["served"] + max(working, of["publishing"]))


def standing(plan: Plan) -> Iterator[Need]:
    """The weights, and the adapters with what training needs of them.

    Weights: a number for each parameter. Adapters: rank · (inputs + outputs) of each linear layer in float32,
    of policy and reference; of the layers that are trained also the gradient and AdamW's two moments.
    """
    shape = plan.shape
    yield Need(
        part="weights",
        bytes=shape.parameters * plan.bytes,
        made_of=f"{_millions(shape.parameters)} M numbers in {plan.number}",
    )
    worn = lora_numbers(plan)
    trained = lora_numbers(plan, plan.first_layer)
    yield Need(
        part="LoRA and optimizer",
        bytes=4 * (2 * worn + 3 * trained),
        made_of=f"rank {plan.rank}: {_millions(worn)} M numbers, policy and reference; "
        f"{_millions(trained)} M are trained",
    )


def lora_numbers(plan: Plan, first_layer: int = 0) -> int:
    """Numbers of one adapter in the layers from `first_layer` on: rank · (inputs + outputs) each."""
    sizes = [one.inputs + one.outputs for one in plan.linears if one.layer >= first_layer]
    return plan.rank * sum(sizes)


def learning(plan: Plan) -> Iterator[Need]:
    """What an update keeps for its backward pass, and what it works with meanwhile.

    Kept: `kept_by_a_layer` for each token and trained layer, with checkpointing its input only; and the holes
    in the heap. Tokens: a packed tree's, or those of the longest conversation where that is more.
    Besides: logits of 128 tokens three times over in float32, the states around the head, the widest layer's
    arrays of its backward pass, and the gradients of the shared tokens' keys and values.
    """
    shape, nodes = plan.shape, max(plan.nodes, plan.max_length)
    layers = max(shape.layers - plan.first_layer, 0)
    layer = kept_by_a_layer(plan)
    kept = layers * _held_of_a_layer(plan, layer)
    gradients = 2 * 4 * shape.keys * layers * nodes
    besides = 4 * (3 * CHUNK * shape.vocabulary + nodes * (4 * shape.width + 6 * shape.inner)) + gradients
    why = "layers' inputs only" if plan.checkpointing else f"{layers} layers of {layer / 1000:.1f} KB"
    yield Need(
        part="an update",
        bytes=round(nodes * kept) + besides,
        made_of=f"{nodes} tokens at once: {why}, and working space",
        stage="learning",
    )


def _held_of_a_layer(plan: Plan, layer: int) -> float:
    """Bytes a token that memory holds for a layer which keeps `layer` of them, the heap's holes included.

    With checkpointing its input, and on a device a share of the one layer that is computed again.
    """
    on_cpu = plan.device == "cpu"
    if plan.checkpointing:
        again = RECOMPUTED_HOLES * layer if on_cpu else layer / max(plan.shape.layers - plan.first_layer, 1)
        return plan.shape.width * plan.bytes + again
    return layer * (HOLES[plan.number] if on_cpu and not own_blocks(plan) else 1.0)


def kept_by_a_layer(plan: Plan) -> int:
    """Bytes that a layer keeps of a token. d: width, q: queries, k: keys, f: the MLP's width, r: LoRA rank.

    strop's own blocks (float32 on a processor, plain Llama, Qwen 2 and Mistral): 8d + 8q + 8k + 8f, and 4 a
    head. The model's own modules in float32: 16d + 12q + 8k + 16f + 28r; in bfloat16, where norms are
    computed in float32: 12d + 6q + 4k + 8f + 22r. Other families are taken as these.
    """
    shape, rank = plan.shape, plan.rank
    d, q, k, f = shape.width, shape.queries, shape.keys, shape.inner
    if plan.number == "bfloat16":
        return 12 * d + 6 * q + 4 * k + 8 * f + 22 * rank + 4 * shape.heads
    if own_blocks(plan):
        return 8 * (d + q + k + f) + 4 * shape.heads
    return 16 * d + 12 * q + 8 * k + 16 * f + 28 * rank + 4 * shape.heads


def own_blocks(plan: Plan) -> bool:
    """Whether strop's own blocks, which keep less, are what learns."""
    shape, plain = plan.shape, plan.number == "float32" and plan.device == "cpu" and not plan.checkpointing
    return plain and shape.kind in OWN_BLOCKS and shape.activation == "silu"


def serving(plan: Plan) -> Iterator[Need]:
    """Copies that serve and their caches; nothing where vLLM serves.

    A copy has weights of its own in the layers that carry the LoRA. While a version is published the one
    before still serves. A cache holds keys and values, 2 · layers · keys numbers a token, for so many
    conversations of `max_length` tokens: all of a cohort that may run at once, in powers of two.
    """
    if not plan.serves:
        return
    shape = plan.shape
    copy = sum(one.inputs * one.outputs for one in plan.linears) * plan.bytes
    yield Need(
        part="policy that serves", bytes=copy, made_of="its layers with the LoRA folded in", stage="served"
    )
    yield Need(part="next policy", bytes=copy, made_of="while it is proved, beside it", stage="publishing")
    if plan.judge:
        folded = shape.adapted * plan.bytes
        yield Need(part="judge that serves", bytes=folded, made_of="likewise, with its own", stage="served")
    rows = _rows(plan.sessions, plan.slots)
    yield Need(
        part="attempts",
        bytes=_cache(plan, rows) + _reading(plan),
        made_of=f"keys and values of {rows} conversations of {plan.max_length} tokens",
        stage="sampling",
    )
    if plan.judge:
        yield Need(
            part="judging",
            bytes=_cache(plan, JUDGE_SLOTS) + _reading(plan),
            made_of=f"keys and values of {JUDGE_SLOTS} conversations of {plan.max_length} tokens",
            stage="judging",
        )


def _rows(sessions: int, slots: int) -> int:
    """Rows of a cache: it doubles until all sessions have one, up to the slots."""
    rows = 4
    while rows < min(sessions, slots):
        rows *= 2
    return min(rows, slots)


def _cache(plan: Plan, rows: int) -> int:
    return rows * plan.max_length * plan.token_bytes


def _reading(plan: Plan) -> int:
    """Prompts' tokens in the widest layer, norms in float32, and logits of 128 tokens four times over."""
    shape = plan.shape
    states = PIECE * (3 * plan.bytes * shape.inner + 16 * shape.width + 2 * plan.bytes * shape.queries)
    return states + 4 * 4 * CHUNK * shape.vocabulary


def loading(plan: Plan) -> Need:
    """The file's pages while weights are converted; weights in the file's own format are its pages."""
    stored = plan.shape.stored
    converted = stored != plan.shape.parameters * plan.bytes
    return Need(
        part="loading",
        bytes=stored if converted else 0,
        made_of="the file, until it is converted" if converted else "nothing: read as it is stored",
        stage="loading",
    )


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f}"
