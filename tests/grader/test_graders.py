"""Predict, attribute and select on grades small enough to count by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from strop.grader.attribute import attribute, sharpest_drop
from strop.grader.comparison import Comparison
from strop.grader.grade import Graded, StepGrade
from strop.grader.predict import DEFAULT, predict
from strop.grader.select import select
from strop.stats.intervals import Estimate


def step(index, grade, n_tokens=1, **fields):
    given = {
        "self_certainty": 1.0,
        "deepconf": 1.0,
        "policy_logprob": -1.0,
        "reference_logprob": -1.0,
    } | fields
    return StepGrade(
        index=index,
        message_index=index,
        n_tokens=n_tokens,
        grade=grade,
        mean=grade / n_tokens,
        entropy=0.0,
        **given,
    )


def graded(name, grades, truth, wrong=None, scenario=None, tokens=None):
    tokens = tokens or [1] * len(grades)
    steps = tuple(step(i, g, n) for i, (g, n) in enumerate(zip(grades, tokens, strict=True)))
    return Graded(
        trajectory_id=name,
        scenario_id=scenario or name,
        group_id="g",
        steps=steps,
        truth=truth,
        first_wrong_step=wrong,
    )


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def separated(n=20):
    """Grade tells success exactly; length says nothing."""
    return [graded(f"t{i}", [1.0 + i if i % 2 else -1.0 - i], float(i % 2)) for i in range(n)]


def test_prediction_that_separates_beats_every_null(rng):
    result = predict(separated(), rng, resamples=200)
    assert result.results[DEFAULT].estimate == 1.0
    assert result.nulls["fewer tokens"].estimate == 0.5
    assert result.nulls["constant"].estimate == 0.5
    assert result.differences["DeepConf"].estimate == 0.5
    assert result.beats_nulls is True


def test_prediction_counts_pairs_ties_half(rng):
    # successes at 2 and 0, failures at 1 and 0: pairs (2>1) 1, (2>0) 1, (0<1) 0, (0=0) half: 2.5 / 4.
    runs = [graded(str(i), [g], t) for i, (g, t) in enumerate([(2, 1.0), (0, 1.0), (1, 0.0), (0, 0.0)])]
    assert predict(runs, rng, resamples=200).results[DEFAULT].estimate == pytest.approx(0.625)


def test_length_in_disguise_does_not_beat_length(rng):
    runs = [graded(f"t{i}", [1.0] * (1 + i % 3), float(i % 3 == 2)) for i in range(30)]
    result = predict(runs, rng, resamples=200)
    assert result.results[DEFAULT].estimate == result.nulls["more steps"].estimate == 1.0
    assert result.nulls["fewer steps"].estimate == 0.0
    assert result.beats_nulls is False
    assert "does not beat: more tokens, more steps" in result.verdict


def test_certainty_keeps_the_sign_of_its_definition(rng):
    pairs = [(f"sure{i}", 9.0, 1.0) for i in range(4)] + [(f"unsure{i}", 1.0, 0.0) for i in range(4)]
    runs = [replace(graded(n, [0.0], t), steps=(step(0, 0.0, deepconf=d),)) for n, d, t in pairs]
    result = predict(runs, rng, resamples=200)
    assert result.nulls["DeepConf"].estimate == 1.0
    assert result.nulls["Self-Certainty"].estimate == 0.5


def test_one_class_is_not_measured_and_says_so(rng):
    result = predict([graded(str(i), [float(i)], 1.0) for i in range(5)], rng, resamples=50)
    assert result.results[DEFAULT].estimate is None
    assert result.beats_nulls is None
    assert "not measured" in result.verdict


def test_what_is_left_out_is_counted(rng):
    blank = Graded(trajectory_id="x", scenario_id="x", group_id="g", ungraded="no turns", truth=1.0)
    result = predict([*separated(), blank, graded("y", [1.0], None)], rng, resamples=50)
    assert result.excluded == {"ungraded": 1, "no truth": 1}
    assert result.results[DEFAULT].n == 20


def test_nothing_to_predict(rng):
    assert predict([], rng).results[DEFAULT].estimate is None
    assert attribute([], rng).results["lowest step"].estimate is None
    assert select([], rng).results["largest sum"].estimate is None


def test_attribution_by_hand(rng):
    runs = [
        graded("a", [1.0, -2.0, 0.5], 0.0, wrong=1, tokens=[1, 5, 2]),  # lowest 1, cumsum 1, drop 1
        graded("b", [-3.0, 1.0, -2.5, 2.0], 0.0, wrong=2, tokens=[9, 1, 1, 1]),  # lowest 0, cumsum 2, drop 2
        graded("c", [0.0, 0.0], 0.0, wrong=0),  # all tie: half a hit; drop names 1
        graded("won", [-9.0], 1.0, wrong=None),
        graded("unknown", [-9.0], 0.0, wrong=None),
    ]
    result = attribute(runs, rng, resamples=200)
    values = {name: e.estimate for name, e in (result.results | result.nulls).items()}
    assert values == pytest.approx(
        {
            "lowest step": 0.5,
            "lowest cumulative sum": 2.5 / 3,
            "sharpest drop": 2 / 3,
            "uniform guess": (1 / 3 + 1 / 4 + 1 / 2) / 3,
            "first step": 1 / 3,
            "last step": 0.0,
            "longest step": 0.5,
        }
    )
    assert result.excluded == {"first wrong step unknown": 1}
    assert result.differences["last step"].estimate == pytest.approx(0.5)


def test_the_sharpest_drop_needs_a_step_before():
    assert sharpest_drop(np.array([-5.0, -6.0, 0.0])).tolist() == [np.inf, -1.0, 6.0]
    assert sharpest_drop(np.array([-5.0])).tolist() == [0.0]


def test_selection_by_hand(rng):
    runs = [
        graded("a1", [3.0], 1.0, scenario="a", tokens=[2]),
        graded("a2", [1.0], 0.0, scenario="a", tokens=[9]),
        graded("b1", [1.0, 1.0], 1.0, scenario="b"),
        graded("b2", [2.0], 0.0, scenario="b"),  # ties with b1: half each
        graded("c1", [5.0], 0.0, scenario="c"),
        graded("c2", [1.0], 0.0, scenario="c"),
        graded("alone", [1.0], 1.0),
    ]
    result = select(runs, rng, resamples=200)
    assert result.results["largest sum"].estimate == pytest.approx(0.5)
    assert result.results["oracle"].estimate == pytest.approx(2 / 3)
    assert result.nulls["random"].estimate == pytest.approx(1 / 3)
    assert result.nulls["shortest"].estimate == pytest.approx(1 / 3)
    assert result.results["largest sum"].n == 3
    assert result.excluded == {"ungraded, without truth or alone": 1}


def test_a_comparison_is_plain_json(rng):
    line = json.loads(json.dumps(predict(separated(), rng, resamples=50).to_json(), allow_nan=False))
    assert line["results"][line["default"]]["estimate"] == 1.0
    assert line["verdict"].endswith("beats every null shown")


def test_an_unknown_difference_is_not_a_win():
    sure = Estimate(estimate=0.9, low=0.8, high=0.95, n=9, method="m")
    unknown = Estimate(estimate=None, low=None, high=None, n=1, method="none: one cluster only")
    beside = Comparison(
        measure="m", default="d", results={"d": sure}, nulls={}, differences={"x": sure, "y": unknown}
    )
    assert beside.beats_nulls is None
    assert beside.verdict == "d: too little data to compare it with y"


def test_a_null_that_cannot_be_computed_is_not_beaten_and_says_why():
    sure = Estimate(estimate=0.9, low=0.8, high=0.95, n=9, method="m")
    beside = Comparison(
        measure="m", default="d", results={"d": sure}, nulls={"x": sure}, differences={"x": sure}
    ).lacking({"y": "nobody saw it"})
    assert beside.beats_nulls is None
    assert beside.verdict == "d: not compared with y (nobody saw it)"
    line = beside.to_json()
    assert line["nulls"]["y"]["estimate"] is line["differences"]["y"]["estimate"] is None
    assert line["nulls"]["y"]["method"] == "none: nobody saw it"
