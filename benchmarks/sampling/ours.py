"""Our sampler as an agent meets it: the gateway over HTTP, the SDK's client, everything recorded."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sampling.workload import Workload
from strop.errors import EngineError
from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.sampling import Tokenizer
from strop.inference.server import serve
from strop.rollout.environment import Scenario
from strop.rollout.runner import RolloutPlan, collect
from strop.trajectory.model import Group

MAX_LENGTH = 1536


@contextmanager
def gateway(model: Path, tokenizer: Tokenizer, slots: int, *, ends: bool, dtype: str) -> Iterator[Gateway]:
    """A gateway over the model in this folder until the block ends."""
    import torch

    from strop.engines.local.sampler import LocalSampler
    from strop.engines.local.weights import load_base, pick_device

    device = pick_device("auto")
    sampler = LocalSampler(device, slots=slots, max_length=MAX_LENGTH)
    eos_ids = tokenizer.eos_ids if ends else frozenset()
    weights = load_base(model, getattr(torch, dtype), device)
    sampler.serve("policy@0", 0, weights, eos_ids=eos_ids, decode=tokenizer.decode)
    sampler.route("policy", "policy@0")
    made = Gateway(sampler, Chat(tokenizer), api_key=None, max_context=MAX_LENGTH)
    try:
        with serve(made.app) as server:
            made.root = server.url
            yield made
    finally:
        sampler.close()


async def rolled_out(sessions: Gateway, workload: Workload, scenarios: Sequence[Scenario]) -> list[Group]:
    """All attempts by strop's own runner. Raises EngineError where one failed."""
    plan = RolloutPlan(sessions=sessions, attempt=workload.attempt, part="rollouts", limits=workload.limits)
    groups = await collect(scenarios, plan)
    for trajectory in (t for group in groups for t in group.trajectories):
        if trajectory.failure:
            raise EngineError(f"{trajectory.trajectory_id}: {trajectory.failure}")
    return groups


def sampled_tokens(groups: Sequence[Group]) -> int:
    """How many tokens were sampled."""
    return sum(len(turn.sampled_ids) for group in groups for t in group.trajectories for turn in t.turns)
