"""Verdicts as values: never both scores and a failure, the same after JSON, and applied without loss."""

import json
from dataclasses import replace

import pytest

from strop.errors import InputError
from strop.judge.verdict import Cost, Failure, Reply, Verdict, apply
from strop.trajectory.model import Group, Trajectory, Turn

TURN = Turn(
    prompt_ids=(1,),
    sampled_ids=(2,),
    logprobs=(-0.5,),
    finish_reason="stop",
    message_index=1,
    policy_version=3,
)


def group() -> Group:
    trajectories = tuple(
        Trajectory(
            trajectory_id=name, scenario_id="s", group_id="g", messages=({"role": "user", "content": "x"},),
            turns=(TURN,), truth=1.0, metrics={"m": 2.0}, metadata={"k": [1]}, failure="deadline",
        )
        for name in "ab"
    )  # fmt: skip
    return Group(group_id="g", scenario_id="s", trajectories=trajectories, metadata={"exceptions": 1})


def full(**changes: object) -> Verdict:
    cost = Cost(tokens_in=5, tokens_out=2, money=None, seconds=0.25, calls=1)
    reply = Reply(
        text="{",
        finish_reason="stop",
        nonce="beef",
        shown={"1": ("a", "b")},
        failure=Failure.NO_JSON,
        cost=cost,
    )
    verdict = Verdict(
        group_id="g", scores={"a": 0.25, "b": 1.0}, explanations={"a": "\ud800 é"}, flags=("tolerant",),
        reliability=0.5, cost=cost, replies=(reply,),
    )  # fmt: skip
    return replace(verdict, **changes)  # type: ignore[arg-type]


def test_scores_and_failure_exclude_each_other() -> None:
    with pytest.raises(InputError, match="not both or none"):
        Verdict(scores={"a": 0.5}, failure=Failure.EMPTY)
    with pytest.raises(InputError, match="not both or none"):
        Verdict()


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.001, 1.001])
def test_no_verdict_holds_a_wrong_score(score: float) -> None:
    with pytest.raises(InputError, match="not in"):
        Verdict(scores={"a": score})


@pytest.mark.parametrize("verdict", [full(), full(scores=None, failure=Failure.TIMEOUT, detail="late")])
def test_json_gives_the_same_verdict_back(verdict: Verdict) -> None:
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_wrong_json_is_refused() -> None:
    whole = json.loads(json.dumps(full().to_json()))
    for broken in (
        {**whole, "schema": 99},
        {key: value for key, value in whole.items() if key != "cost"},
        {**whole, "extra": 1},
        {**whole, "scores": None, "failure": "sunspots"},
        {**whole, "replies": [{}]},
    ):
        with pytest.raises(InputError):
            Verdict.from_json(broken)


def test_apply_changes_the_score_and_nothing_else() -> None:
    judged = apply(group(), full())
    assert [t.score for t in judged.trajectories] == [0.25, 1.0]
    assert tuple(replace(t, score=None) for t in judged.trajectories) == group().trajectories
    assert replace(judged, trajectories=group().trajectories) == group()
    assert apply(group(), full(noise=0.03)).noise == 0.03


def test_apply_writes_a_failure_as_unscored_never_as_zero() -> None:
    judged = apply(group(), full(scores=None, failure=Failure.REFUSAL))
    assert [(t.score, t.unscored) for t in judged.trajectories] == [(None, "refusal")] * 2
    partly = apply(group(), full(scores={"a": 0.0}))
    assert [(t.score, t.unscored) for t in partly.trajectories] == [(0.0, None), (None, "missing_ids")]
    with pytest.raises(InputError, match="'h'"):
        apply(group(), full(group_id="h"))


def test_costs_add_and_an_unknown_price_stays_unknown() -> None:
    known = Cost(tokens_in=1, tokens_out=2, money=0.5, seconds=3.0, calls=1)
    assert known + known == Cost(tokens_in=2, tokens_out=4, money=1.0, seconds=6.0, calls=2)
    assert (known + Cost(money=None, calls=1)).money is None
    assert known + Cost() == known
