"""Step values at the order desk: resets live through the same luck, values by a clerk's habits."""

import asyncio
import json

import numpy as np
import pytest

from strop.demo.clerk import Habits, demonstrate
from strop.demo.desk import OrderDesk
from strop.demo.orders import REFUNDABLE, STATUSES, scenario, scenarios
from strop.demo.step_values import Completions, step_values
from strop.errors import InputError
from strop.inference.chat import Chat
from strop.inference.gateway import Gateway
from strop.inference.scripted import ByteTokenizer, ScriptedSampler
from strop.inference.server import serve
from strop.rollout.limits import Limits
from strop.trajectory.model import Trajectory

CASES = scenarios("heldout", 12)


def habits(right):
    return Habits(right_by_status=dict.fromkeys(STATUSES, right), blind=0.3)


def recorded(case, right, seed):
    shown = demonstrate(case, habits(right), np.random.default_rng(seed))
    return Trajectory(
        trajectory_id=f"{case.scenario_id}/{seed}",
        scenario_id=case.scenario_id,
        group_id="g",
        messages=shown.messages,
        truth=shown.outcome.value,
        first_wrong_step=shown.outcome.first_wrong_step,
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_replayed_desk_comes_to_the_same_end(seed):
    run = recorded(CASES[seed], 0.5, seed)
    desk = OrderDesk(CASES[seed], np.random.default_rng(99))
    desk.replay(run.messages)
    ended = desk.truth(run.messages)
    assert (ended.value, ended.first_wrong_step) == (run.truth, run.first_wrong_step)
    assert desk.messages == run.messages


def test_another_desks_conversation_is_refused():
    run = recorded(CASES[0], 1.0, 0)
    desk = OrderDesk(scenario("heldout", 50), np.random.default_rng(0))
    with pytest.raises(InputError, match="not of this desk"):
        desk.replay(run.messages)


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def good_clerk(prompt):
    """Looks up until it knows, decides rightly, tells."""
    if '"ok"' in prompt or "already decided" in prompt:
        return "Done."
    case = next((c for c in CASES if f"order {c.order}" in prompt or f'order": "{c.order}' in prompt), None)
    if case is None:
        return call("ask", question="Which order?")
    if '"status"' not in prompt:
        return call("lookup", order=case.order)
    return call("refund" if case.status in REFUNDABLE else "decline", order=case.order)


def test_values_fall_to_nothing_where_it_went_wrong():
    tokenizer = ByteTokenizer()
    sampler = ScriptedSampler(tokenizer, good_clerk, names=("policy@0", "policy"))
    gateway = Gateway(sampler, Chat(tokenizer), api_key=None, max_context=20_000)
    runs = [recorded(case, float(k % 2), 10 + k) for k, case in enumerate(CASES[:6])]
    with serve(gateway.app) as server:
        gateway.root = server.url
        limits = Limits(attempts=2, max_turns=20, max_tokens=150, deadline_s=60)
        lines = asyncio.run(step_values(runs, Completions(sessions=gateway, limits=limits)))
    assert {run.truth for run in runs} == {0.0, 1.0}
    for run, line in zip(runs, lines, strict=True):
        assert line["trajectory_id"] == run.trajectory_id
        wrong = run.first_wrong_step
        steps = sum(m["role"] == "assistant" for m in run.messages)
        # A perfect clerk puts everything right but what cannot be undone.
        before = steps if wrong is None else wrong
        assert line["step_scores"] == [1.0] * before + [0.0] * (steps - before)
