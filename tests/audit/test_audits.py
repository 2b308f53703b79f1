import json

import numpy as np
import pytest

from strop.audit.cost import counts, judge_cost, seconds_by_stage
from strop.audit.curve import curve
from strop.audit.judge import audit_judge, places, tied_share, written
from strop.audit.summary import Evidence, audit
from strop.audit.truth import heldout, truth
from strop.judge.verdict import Cost, Failure, Reply, Verdict
from strop.trajectory.model import Group, Trajectory


def attempt(name, score=None, truth=None, said="ok", scenario="s", unscored=None):
    messages = ({"role": "user", "content": "please help"}, {"role": "assistant", "content": said})
    return Trajectory(
        trajectory_id=name,
        scenario_id=scenario,
        group_id=scenario,
        messages=messages,
        score=score,
        truth=truth,
        unscored=unscored,
    )


def group(name, *attempts):
    return Group(group_id=name, scenario_id=name, trajectories=attempts)


def reply(*shown, failure=None):
    return Reply(
        text="{}",
        finish_reason="stop",
        nonce="ab",
        shown={str(i): (name,) for i, name in enumerate(shown, start=1)},
        failure=failure,
        cost=Cost(),
    )


@pytest.fixture
def rng():
    return np.random.default_rng(0)


GROUPS = [
    group("g1", attempt("a", 0.9, 1.0, "long long"), attempt("b", 0.1, 0.0), attempt("c", 0.1, 1.0, "x")),
    group("g2", attempt("d", 0.5, 1.0), attempt("e", 0.5, 0.0, "longer")),
    group("g3", attempt("f", None, 1.0, unscored="no_json"), attempt("h", 0.5, None)),
]
VERDICTS = [
    Verdict(
        group_id="g1",
        scores={"a": 0.9, "b": 0.1, "c": 0.1},
        replies=(reply("a", "b", "c"), reply("c", "b", "a")),
    ),
    Verdict(group_id="g2", scores={"d": 0.5, "e": 0.5}, replies=(reply("d", "e"),)),
    Verdict(group_id="g3", failure=Failure.NO_JSON, replies=(reply("h", "f", failure=Failure.NO_JSON),)),
]


def test_agreement_and_nulls_by_hand(rng):
    audited = audit_judge(GROUPS, VERDICTS, rng)
    # pairs of different truth: a>b right, c=b half, d=e half; shorter wins: a>b wrong, c>b right, d>e right.
    assert audited["agreement"]["estimate"] == pytest.approx(2 / 3)
    assert (audited["agreement"]["n"], audited["agreement"]["clusters"]) == (3, 2)
    assert audited["nulls"]["shorter wins"]["estimate"] == pytest.approx(2 / 3)
    assert audited["nulls"]["longer wins"]["estimate"] == pytest.approx(1 / 3)
    assert audited["nulls"]["constant"]["estimate"] == 0.5
    assert audited["differences"]["shorter wins"]["estimate"] == pytest.approx(0.0)
    assert audited["differences"]["constant"]["estimate"] == pytest.approx(1 / 6)
    assert audited["excluded"] == {"unscored": 1, "no truth": 1}
    assert audited["failures"] == {"no_json": 1}
    assert (audited["groups"], audited["attempts"]) == (3, 7)
    assert json.loads(json.dumps(audited, allow_nan=False)) == audited


def test_shown_place_is_a_null_only_where_it_is_known_for_all(rng):
    assert "shown first wins" not in audit_judge(GROUPS, VERDICTS, rng)["nulls"]
    known = audit_judge(GROUPS[:2], VERDICTS[:2], rng)
    # a, b, c were each shown at mean place 2; d before e.
    assert known["nulls"]["shown first wins"]["estimate"] == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_places_skip_failed_replies():
    assert places(VERDICTS) == {"a": 2.0, "b": 2.0, "c": 2.0, "d": 1.0, "e": 2.0}


def test_tied_groups_are_those_without_any_difference():
    assert (tied_share(GROUPS).estimate, tied_share(GROUPS).n) == (0.5, 2)


def test_length_counts_the_agents_own_words_and_calls():
    assert written(attempt("a", said="four")) == 4
    called = Trajectory(
        trajectory_id="t",
        scenario_id="s",
        group_id="g",
        messages=(
            {"role": "assistant", "content": None, "tool_calls": [1]},
            {"role": "tool", "content": "xxxx"},
        ),
    )
    assert written(called) == len("[1]")


def test_truth_without_a_label_is_not_a_failure(rng):
    runs = [
        attempt("a", truth=1.0, scenario="1"),
        attempt("b", truth=0.0, scenario="2"),
        attempt("c", scenario="3"),
    ]
    estimate = truth(runs, rng)
    assert (estimate.estimate, estimate.n, estimate.excluded) == (0.5, 2, 1)
    assert estimate.method.startswith("Wilson")


def test_two_attempts_at_a_scenario_are_resampled_by_scenario(rng):
    runs = [attempt(f"{s}{i}", truth=float(s % 2), scenario=str(s)) for s in range(8) for i in range(2)]
    estimate = truth(runs, rng)
    assert (estimate.estimate, estimate.n, estimate.clusters) == (0.5, 16, 8)


def test_before_and_after_are_paired_by_scenario(rng):
    before = [attempt("a", truth=0.0, scenario="1"), attempt("b", truth=1.0, scenario="2")]
    after = [attempt("c", truth=1.0, scenario="2"), attempt("d", truth=1.0, scenario="1")]
    difference = heldout(before, after, rng)["truth_difference"]
    assert (difference["estimate"], difference["n"]) == (0.5, 2)


def test_costs_add_up_and_a_part_of_a_bill_is_no_bill():
    priced = Verdict(
        group_id="a", scores={}, cost=Cost(tokens_in=5, tokens_out=2, money=0.25, seconds=1.5, calls=2)
    )
    failed = Verdict(group_id="b", failure=Failure.EMPTY, cost=Cost(tokens_in=1, money=0.5, calls=1))
    assert judge_cost([priced, failed]) == {
        "tokens_in": 6, "tokens_out": 2, "money": 0.75, "seconds": 1.5, "calls": 3,
    }  # fmt: skip
    assert judge_cost([priced, Verdict(group_id="c", scores={}, cost=Cost(money=None))])["money"] is None


def test_stage_seconds_add_up():
    steps = [{"seconds": {"rollout": 1.0, "judge": 2.0}}, {"seconds": {"judge": 0.5}}, {}]
    assert seconds_by_stage(steps) == {"rollout": 1.0, "judge": 2.5}


def test_no_evidence_gives_no_numbers_and_reasons(rng):
    summary = audit(Evidence(), rng)
    for name in ("truth_before", "truth_after", "truth_difference", "judge_agreement", "grader_auroc"):
        assert summary[name]["estimate"] is None
        assert summary[name]["method"].startswith("none:")
    assert "not measured" in summary["attribution"]["verdict"]
    assert set(summary["grader"]) == {"auroc", "predict", "select", "trajectories", "ungraded"}


def test_the_curve_is_in_step_order_with_exclusions_counted(rng):
    late = [attempt("a", 0.8, 1.0, scenario="1"), attempt("b", None, 0.0, scenario="2", unscored="empty")]
    early = [attempt("c", 0.2, 0.0, scenario="1"), attempt("d", 0.4, 0.0, scenario="2")]
    points = curve({3: late, 0: early}, rng)
    assert [p["step"] for p in points] == [0, 3]
    assert (points[0]["truth"]["estimate"], points[1]["truth"]["estimate"]) == (0.0, 0.5)
    assert points[0]["score"]["estimate"] == pytest.approx(0.3)
    assert (points[1]["score"]["estimate"], points[1]["score"]["excluded"]) == (None, 1)


def test_fates_add_up_over_steps():
    steps = [{"groups": {"all": 4, "trained": 3, "tied": 1}}, {"groups": {"all": 4, "trained": 4}}, {}]
    assert counts(steps, "groups") == {"all": 8, "trained": 7, "tied": 1}
