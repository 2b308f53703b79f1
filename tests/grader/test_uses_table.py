"""Scores from elsewhere, truths, tuned readings and forecasts: by hand, and against what noise would give."""

from dataclasses import replace

import numpy as np
import pytest
from test_graders import graded, step

from strop.errors import InputError
from strop.grader import nested
from strop.grader.attribute import RULES, attribute, constants, hits
from strop.grader.baselines import GUESSES, OWN, RUNS, STEPS, UNKNOWN, parted
from strop.grader.columns import Column, covered, read_column, read_inline
from strop.grader.folds import scenario_folds
from strop.grader.labels import labelled, read_labels, tool_call_scores
from strop.grader.predict import DEFAULT as SUM
from strop.grader.predict import predict
from strop.grader.readings import centred_runs, centred_steps, run_readings, step_readings, step_values
from strop.grader.reliability import crossfitted, reliability
from strop.grader.select import DEFAULT, curves, select
from strop.grader.step_readings import StepTokens, read_spans


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def one(*steps, name="t", **fields):
    return graded(name, [1.0], 1.0, **fields).__class__(
        trajectory_id=name, scenario_id=name, group_id="g", steps=steps, truth=1.0
    )


def test_run_baselines_by_hand():
    run = one(
        step(0, -1.0, 2, policy_logprob=-2.0, reference_logprob=-1.0, self_certainty=3.0, deepconf=1.0),
        step(1, 4.0, 6, policy_logprob=-6.0, reference_logprob=-10.0, self_certainty=1.0, deepconf=5.0),
    )
    values = {name: score(run) for name, score in {**RUNS, **OWN}.items()}
    assert values == pytest.approx(
        {
            "fewer tokens": -8,
            "more tokens": 8,
            "fewer steps": -2,
            "more steps": 2,
            "constant": 0,
            "policy log-prob": -8,
            "reference log-prob": -11,
            "Self-Certainty": 1.5,
            "Self-Certainty, sign flipped": -1.5,
            "DeepConf": 4,
            "DeepConf, sign flipped": -4,
            "DeepConf of the last step": 5,
            "DeepConf of the lowest tenth of steps": 1,
            "low perplexity": -np.e,
            "low perplexity of the reference": -np.exp(11 / 8),
            "low entropy": 0,
            "high entropy": 0,
            "progress advantage (mean step)": 1.5,
            "progress advantage (lowest step)": -1,
            "implicit reward, whole run (telescoped)": 3,
            "implicit reward per token": 3 / 8,
            "implicit reward, lowest prefix": -1,
        }
    )


def test_a_perplexity_beyond_numbers_is_still_one():
    assert np.isfinite(RUNS["low perplexity"](one(step(0, 0.0, 1, policy_logprob=-1e6))))


def test_step_baselines_name_by_hand():
    run = one(
        step(0, 0.0, 2, policy_logprob=-8.0, reference_logprob=-1.0, self_certainty=3.0, deepconf=9.0),
        step(1, 0.0, 9, policy_logprob=-9.0, reference_logprob=-2.0, self_certainty=1.0, deepconf=1.0),
    )
    named = {name: int(np.argmin(score(run))) for name, score in STEPS.items()}
    assert named["highest perplexity"] == 0
    assert named["policy log-prob"] == named["reference log-prob"] == named["longest step"] == 1
    assert named["shortest step"] == named["first step"] == 0
    assert named["Self-Certainty"] == named["DeepConf"] == 1
    assert named["Self-Certainty, sign flipped"] == named["DeepConf, sign flipped"] == 0


def test_columns_in_the_grades_file_and_of_their_own():
    lines = [
        ("g:1", {"trajectory_id": "a", "scores": {"judge": 0.5}, "step_scores": {"prm": [0.1, 0.9]}}),
        ("g:2", {"trajectory_id": "b", "scores": {"judge": 1}}),
    ]
    found = read_inline(lines)
    assert found["judge"].runs == {"a": 0.5, "b": 1.0}
    run = graded("a", [1.0, 2.0], 1.0)
    assert {n: s(run) for n, s in found["prm"].run_scores().items()} == pytest.approx(
        {"prm (mean step)": 0.5, "prm (lowest step)": 0.1}
    )
    assert found["prm"].step_scores()["prm"](run).tolist() == [0.1, 0.9]
    alone = read_column("mc", [("f:1", {"trajectory_id": 7, "score": 0.25, "step_scores": [1, 0]})])
    assert (alone.runs, alone.steps["7"].tolist()) == ({"7": 0.25}, [1.0, 0.0])


def test_verdicts_are_a_column_and_a_failed_one_is_a_gap():
    lines = [
        ("v:1", {"group_id": "s1", "scores": {"a": 0.75, "b": 0}, "failure": None}),
        ("v:2", {"group_id": "s2", "scores": None, "failure": "timeout"}),
    ]
    assert read_column("judge", lines).runs == {"a": 0.75, "b": 0.0}
    with pytest.raises(InputError, match=r"v:3: scores\.a must be a number"):
        read_column("judge", [("v:3", {"group_id": "s", "scores": {"a": "good"}})])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"score": 1}, "f:3: no trajectory_id"),
        ({"trajectory_id": "a"}, "f:3: neither score nor step_scores"),
        ({"trajectory_id": "a", "step_scores": []}, "f:3: step_scores must be a list"),
        ({"trajectory_id": "a", "score": "high"}, "f:3: score must be a number"),
    ],
)
def test_broken_columns(line, said):
    with pytest.raises(InputError, match=said):
        read_column("x", [("f:3", line)])


def test_all_scores_are_compared_on_the_same_runs():
    runs = [graded("a", [1.0], 1.0), graded("b", [1.0], 1.0)]
    kept, lost = covered(runs, [Column(name="judge", runs={"a": 1.0})])
    assert ([g.trajectory_id for g in kept], lost) == (["a"], {"no score of judge": 1})
    with pytest.raises(InputError, match="1 step scores of c, which has 2 graded steps"):
        covered([graded("c", [1.0, 2.0], 1.0)], [Column(name="prm", steps={"c": np.array([1.0])})])


def test_a_score_an_assistant_message_is_read_by_step_index():
    run = one(step(1, 0.0), step(3, 0.0))
    column = Column(name="mc", steps={"t": np.array([0.9, 0.8, 0.7, 0.6])})
    assert column.of_steps(run).tolist() == [0.8, 0.6]


def test_steps_without_a_score_are_left_out_and_never_suspected():
    lines = [
        ("g:1", {"trajectory_id": "a", "step_scores": {"prm": [0.9, None, 0.3]}, "scores": {"rm": 1.0}}),
        ("g:2", {"trajectory_id": "b", "step_scores": {"prm": [None, None]}}),
        ("g:3", {"trajectory_id": "c", "step_scores": {"prm": [0.5, 0.1]}}),
    ]
    found = read_inline(lines)
    a, b, c = graded("a", [0.0] * 3, 1.0), graded("b", [0.0] * 2, 1.0), graded("c", [0.0] * 2, 1.0)
    prm, rm = found["prm"], found["rm"]
    assert {n: s(a) for n, s in prm.run_scores().items()} == pytest.approx(
        {"prm (mean step)": 0.6, "prm (lowest step)": 0.3}
    )
    assert prm.step_scores()["prm"](a).tolist() == [0.9, np.inf, 0.3]
    kept, lost = covered([a, b, c], [prm])
    assert ([g.trajectory_id for g in kept], lost) == (["a", "c"], {"no score of prm": 1})
    # c has no score of the whole, which only uses of whole runs lack.
    assert [g.trajectory_id for g in covered([a, b, c], [prm, rm])[0]] == ["a"]
    assert [g.trajectory_id for g in covered([a, b, c], [prm, rm], "steps")[0]] == ["a", "c"]


def test_truths_from_a_trajectory_file():
    calls = [{"function": {"name": "refund"}}, {"function": {"name": "ask"}}]
    lines = [
        ("t:1", {"trajectory_id": "a", "truth": 0.0, "first_wrong_step": 1, "messages": [
            {"role": "user"}, {"role": "assistant"}, {"role": "assistant", "tool_calls": calls}]}),
        ("t:2", {"trajectory_id": "b", "first_wrong_step": None}),
    ]  # fmt: skip
    labels = read_labels(lines)
    first, second = labelled([graded("a", [1.0, 2.0], 1.0), graded("b", [1.0], 0.5, wrong=0)], labels)
    assert (first.truth, first.first_wrong_step) == (0.0, 1)
    assert (second.truth, second.first_wrong_step) == (0.5, None)
    assert labels["a"].calls == ((), ("refund", "ask"))
    assert tool_call_scores([first], labels)["more tool calls"](first) == 2
    assert tool_call_scores([first, second], labels) == {}
    with pytest.raises(InputError, match="none of 2 truths"):
        labelled([graded("z", [1.0], 1.0)], labels)
    with pytest.raises(InputError, match="a is there twice"):
        read_labels([lines[0], lines[0]])
    with pytest.raises(InputError, match="truth 2"):
        read_labels([("t:1", {"trajectory_id": "a", "truth": 2})])


def attempts(rng, scenarios=40, n=4, signal=1.0):
    made = []
    for s in range(scenarios):
        for k in range(n):
            good = float(rng.random() < 0.4)
            made.append(
                graded(f"{s}-{k}", [signal * good + rng.normal(), rng.normal()], good, scenario=str(s))
            )
    return made


def test_the_curve_begins_at_random_and_ends_at_the_pick(rng):
    runs = attempts(rng)
    found, table = curves(runs, RUNS, rng, resamples=100), select(runs, rng, resamples=100, nulls=RUNS)
    assert (found.size, found.scenarios) == (4, 40)
    for name in (DEFAULT, "more tokens", "oracle"):
        line = [e.estimate for e in found.means[name]]
        assert line[0] == pytest.approx(table.nulls["random"].estimate)
        assert line[-1] == pytest.approx({**table.results, **table.nulls}[name].estimate)
    gained = table.results[DEFAULT].estimate - table.nulls["random"].estimate
    room = table.results["oracle"].estimate - table.nulls["random"].estimate
    assert found.gains[DEFAULT].estimate == pytest.approx(gained)
    assert found.closed[DEFAULT].estimate == pytest.approx(gained / room)
    assert found.closed["constant"].estimate == pytest.approx(0.0)
    assert found.to_json()["curve"]["random"][0]["n"] == 40


def test_scenarios_of_other_sizes(rng):
    runs = attempts(rng, 5, 3) + [graded(f"x{i}", [0.0], 1.0, scenario="x") for i in range(2)]
    found = curves(runs, {}, rng, resamples=50)
    assert (found.size, found.scenarios, found.excluded) == (3, 5, {"fewer than 3 attempts": 1})
    assert curves([], {}, rng).to_json()["n_attempts"] == 0


def test_always_the_same_step(rng):
    runs = [graded(f"r{i}", [0.0, -1.0, 0.0], 0.0, wrong=w) for i, w in enumerate([1, 1, 1, 2])]
    found = constants(runs, rng, resamples=50)
    rates = {k: v["estimate"] for k, v in found["always"].items()}
    assert rates == {"0": 0.0, "1": 0.75, "2": 0.25}
    assert found["best_in_sample"]["step"] == 1
    assert found["best_crossfitted"]["estimate"] == 0.75
    assert found["difference"]["estimate"] == 0.0
    nothing = constants([], rng)["best_in_sample"]
    assert (nothing["step"], nothing["rate"]["estimate"]) == (None, None)


def test_a_crossfitted_constant_does_not_see_its_own_scenario(rng):
    # Each scenario's own step is best only because of itself: others never agree.
    runs = [graded(f"r{i}", [0.0] * 4, 0.0, wrong=i) for i in range(4)]
    assert constants(runs, rng, resamples=50)["best_crossfitted"]["estimate"] == 0.0


def test_further_rules_are_shown_and_not_claimed(rng):
    runs = [graded(str(i), [0.0, -1.0], 0.0, wrong=1) for i in range(4)]
    found = attribute(runs, rng, resamples=50, other={"mine": RULES["sharpest drop"]}, nulls=STEPS)
    assert found.results["mine"].estimate == 1.0
    assert set(found.differences) == set(STEPS)
    assert hits(runs, GUESSES["uniform guess"]).tolist() == [0.5] * 4


def test_folds_never_split_a_scenario(rng):
    names = [str(i % 13) for i in range(100)]
    folds = scenario_folds(names, rng)
    assert set(folds) == set(range(5))
    assert all(len({folds[i] for i in range(100) if names[i] == n}) == 1 for n in set(names))
    assert scenario_folds(["a", "a"], rng).tolist() == [0, 0]
    assert scenario_folds([], rng).tolist() == []


def test_readings_begin_with_the_default():
    run = graded("a", [1.0, -3.0], 0.0, wrong=1, tokens=[1, 2])
    assert {n: r(run) for n, r in list(run_readings([run]).items())[:4]} == {
        "sum over sum": -2.0, "mean over sum": -1.0, "min over sum": -3.0, "max over sum": 1.0}  # fmt: skip
    assert run_readings([run])["min over mean"](run) == -1.5
    rules = step_readings([run])
    assert next(iter(rules)) == "lowest of sum"
    assert rules["lowest cumulative of mean"](run).tolist() == [1.0, -0.5]


def test_readings_of_tokens_and_centring_where_the_grades_hold_them():
    tokens = StepTokens(
        policy=np.array([-1.0, -2.0, -4.0]),
        reference=np.array([-2.0, -5.0, -3.0]),
        kl=np.array([0.5, 0.5, 0.5]),
        kinds=None,
    )
    run = one(replace(step(0, 3.0, 3), readings={"reference": read_spans(tokens)}))
    found = {name: read(run.steps[0]) for name, read in step_values([run]).items()}
    assert found == pytest.approx(
        {
            "sum": 3.0,
            "mean": 1.0,
            "min": -1.0,
            "max": 3.0,
            "last": -1.0,
            "bottom10": -1.0,
            "difference of min": -4.0 + 5.0,
            "difference of max": -1.0 + 2.0,
            "difference of bottom10": 1.0,
            "centred sum": 1.5,
            "centred mean": 0.5,
            "centred min": -1.5,
            "centred max": 2.5,
            "centred last": -1.5,
            "centred bottom10": -1.5,
        }
    )
    assert centred_runs([run])["progress advantage, centred (sum)"](run) == 1.5
    assert centred_steps([run])["lowest step, centred"](run).tolist() == [1.5]
    assert centred_runs([run, graded("b", [1.0], 1.0)]) == {}


def test_tuning_on_noise_gains_nothing_out_of_fold(rng):
    runs = attempts(rng, 60, 4, signal=0.0)
    found = nested.nested_select(runs, rng)
    truth = np.mean([g.truth for g in runs])
    assert found.in_sample[1] > truth + 0.02
    assert found.noise > truth + 0.02
    assert found.tuned.low < truth < found.tuned.high
    assert found.candidates == 12
    assert len(found.chosen) == 5


def test_tuning_finds_the_reading_that_works(rng):
    # Only the lowest step tells: a constant of other steps drowns the sum.
    runs = []
    for i in range(120):
        good = i % 2
        noise = rng.normal(scale=30)
        runs.append(graded(str(i), [abs(noise), 1.0 * good + 0.1 * rng.normal() - 5], float(good)))
    found = nested.nested_predict(runs, rng)
    assert found.tuned.estimate > 0.95
    assert found.default.estimate < 0.7
    assert found.difference.low > 0.2
    assert found.in_sample[1] >= found.noise_95


def test_nested_attribution(rng):
    runs = [graded(str(i), [-3.0, 0.0, -2.0], 0.0, wrong=2) for i in range(20)]
    found = nested.nested_attribute(runs, rng).to_json()
    assert found["default"]["estimate"] == 0.0
    assert found["tuned"]["estimate"] == 1.0
    assert set(found["chosen"]) <= {
        "sharpest drop of sum",
        "lowest cumulative of sum",
        "sharpest drop of mean",
    }
    # The best of 6 guesses at one of 3 steps, 20 runs: well above 1/3, below a half.
    assert 0.38 < found["best_noise_in_sample"]["mean"] < 0.55


@pytest.mark.parametrize("nest", [nested.nested_select, nested.nested_predict, nested.nested_attribute])
def test_nothing_to_choose_on(nest, rng):
    found = nest([graded("a", [1.0], 1.0)], rng).to_json()
    assert found["tuned"]["estimate"] is None
    assert found["best_in_sample"] is None


def test_forecasts(rng):
    runs = attempts(rng, 80, 2, signal=2.0)
    found = reliability(runs, rng, scores={"constant": RUNS["constant"]}, resamples=100)
    labels, sums = np.array([g.truth for g in runs]), np.array([g.sum for g in runs])
    assert found["auprc"]["constant"]["estimate"] == pytest.approx(labels.mean())
    assert "do not differ" in found["rejection"]["constant"]["method"]
    assert found["rejection"][SUM]["low"] > 0.2
    half = labels[np.argsort(-sums)][:80]
    assert found["risk_coverage"][2]["failures"]["estimate"] == pytest.approx(1 - half.mean())
    assert found["calibration"]["platt"]["brier_gain"]["low"] > 0
    assert found["calibration"]["base rate"]["brier_gain"]["estimate"] == 0.0
    for promised in found["thresholds"]:
        assert promised["right_held"]["low"] <= promised["nominal"]
        assert promised["wrong_caught"]["estimate"] > promised["nominal"]


def test_maps_are_fitted_on_other_folds_only():
    seen = []

    def fit(scores, labels):
        seen.append(set(scores))
        return lambda x: x

    folds = np.array([0, 0, 1, 1])
    scores = np.array([1.0, 2.0, 3.0, 4.0])
    assert crossfitted(scores, np.array([0.0, 1.0, 0.0, 1.0]), folds, fit).tolist() == scores.tolist()
    assert seen == [{3.0, 4.0}, {1.0, 2.0}]
    assert crossfitted(scores, np.array([0.0, 0.0, 0.0, 1.0]), folds, fit) is None


def test_every_baseline_stands_beside_the_default(rng):
    runs = attempts(rng)
    found = predict(runs, rng, resamples=50, nulls=RUNS, other=OWN)
    assert set(found.nulls) == {*RUNS, "random"}
    flipped = found.nulls["more tokens"].estimate + found.nulls["fewer tokens"].estimate
    assert flipped == pytest.approx(1.0)


def blind(**fields):
    """A step as somebody grades it who sees single log-probs only."""
    return replace(step(0, -1.0, 2), entropy=None, self_certainty=None, deepconf=None, **fields)


@pytest.mark.parametrize("scores", [RUNS, STEPS])
def test_what_is_not_in_the_grades_is_refused_and_never_a_number(scores):
    run = one(blind())
    known, lacking = parted(scores, [run])
    assert set(known) | set(lacking) == set(scores)
    for name, score in scores.items():
        if name in known:
            assert np.isfinite(score(run)).all()
        else:
            with pytest.raises(InputError, match="not in these grades"):
                score(run)
    certain = {name for name in scores if "ertainty" in name or "DeepConf" in name or "entropy" in name}
    assert set(lacking) == certain
    assert parted(scores, [one(step(0, -1.0, 2))])[1] == {}


def test_uses_show_what_is_not_in_the_grades_beside_what_is(rng):
    runs = [
        replace(one(blind(), name=f"{s}{n}"), scenario_id=str(s), truth=float(n))
        for s in range(6)
        for n in range(2)
    ]
    found = predict(runs, rng, resamples=50, nulls=RUNS)
    assert found.nulls["DeepConf"].method == f"none: {UNKNOWN}"
    assert found.nulls["fewer tokens"].estimate == 0.5
    assert select(runs, rng, resamples=50, nulls=RUNS).nulls["low entropy"].estimate is None
    failed = [replace(run, truth=0.0, first_wrong_step=0) for run in runs]
    broken = attribute(failed, rng, resamples=50, nulls=STEPS)
    assert broken.nulls["Self-Certainty"].estimate is None
    assert broken.nulls["longest step"].estimate == 1.0
    assert "DeepConf" not in curves(runs, RUNS, rng, resamples=50).means
    assert "DeepConf" not in reliability(runs, rng, scores=RUNS, resamples=50)["auprc"]
