"""The study of the order desk: its arithmetic, what counts as beaten, its page and its figure."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from studies.order_desk import tables
from studies.order_desk.figure import figure
from studies.order_desk.grades import RIGHT, WRONG, against, as_scores
from studies.order_desk.page import to_json, to_markdown
from studies.order_desk.policies import KL, Policy, adapter, policies
from studies.order_desk.praise import praised
from studies.order_desk.prose import held
from studies.order_desk.results import BESIDE, GAINS, TOGETHER, VALUES, WARM, WITHOUT_KL, Measured, Results
from studies.order_desk.results import WRONG as WRONG_SCORE
from studies.order_desk.setting import Setting
from studies.order_desk.uses import Question, use
from studies.order_desk.values import gains

from strop.errors import InputError
from strop.grader.grade import Graded, StepGrade
from strop.grader.step_readings import StepTokens, read_spans
from strop.trajectory import codec
from strop.trajectory.lines import read_objects, write_objects
from strop.trajectory.model import Trajectory

POLICY = np.log([0.5, 0.25])
REFERENCES = {RIGHT: np.log([0.25, 0.25]), WRONG: np.log([0.125, 0.5])}


def step(index: int, shift: float = 0.0) -> StepGrade:
    """Two tokens; against the right reference the grade is log 2 + shift."""
    policy = POLICY + shift / 2
    readings = {
        name: read_spans(
            StepTokens(policy=policy, reference=of, kl=np.zeros(2), kinds=("prose", "tool_name"))
        )
        for name, of in REFERENCES.items()
    }
    return StepGrade(
        index=index,
        message_index=2 * index + 1,
        n_tokens=2,
        grade=float((policy - REFERENCES[RIGHT]).sum()),
        mean=float((policy - REFERENCES[RIGHT]).mean()),
        policy_logprob=float(policy.sum()),
        reference_logprob=float(REFERENCES[RIGHT].sum()),
        entropy=0.5,
        self_certainty=2.0,
        deepconf=7.0,
        spans={kind: r.ratio.sum for kind, r in readings[RIGHT].items() if kind != "all"},
        readings=readings,
    )


def run(scenario: int, attempt: int, rng: np.random.Generator) -> Graded:
    good = float(rng.random() < 0.5)
    return Graded(
        trajectory_id=f"s{scenario}/warm-start/{attempt}",
        scenario_id=f"s{scenario}",
        group_id=f"s{scenario}/warm-start",
        steps=(step(0, rng.normal()), step(1, rng.normal() + 4 * good - 2)),
        truth=good,
        first_wrong_step=None if good else 1,
    )


def trajectory(graded: Graded) -> Trajectory:
    roles = ("user", "assistant", "user", "assistant")
    return Trajectory(
        trajectory_id=graded.trajectory_id,
        scenario_id=graded.scenario_id,
        group_id=graded.group_id,
        messages=tuple({"role": role, "content": role} for role in roles),
        truth=graded.truth,
        first_wrong_step=graded.first_wrong_step,
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A study's results over made-up grades: the three uses are the product's own."""
    work, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(0)
    graded = [against(run(s, k, rng), RIGHT) for s in range(12) for k in range(4)]
    attempts, other = work / "attempts.jsonl", work / "other.jsonl"
    codec.write(attempts, map(trajectory, graded))
    write_objects(other, as_scores(graded))
    names = (WRONG_SCORE, WITHOUT_KL, TOGETHER, BESIDE, VALUES, GAINS)
    question = Question(
        name="made-up", attempts=attempts, graded=graded, baselines=dict.fromkeys(names, other)
    )
    one = use(question, work)
    assert use(question, work) == one
    truth = {"estimate": 0.5, "low": 0.4, "high": 0.6, "n": 48, "clusters": 12, "method": "made up"}
    return Results(
        setting=Setting(scenarios=12, attempts=4, seeds=2),
        truths={WARM: truth, "seed-0": truth},
        measured=[
            Measured(
                policy=Policy(seed=seed),
                warm=one,
                wrong=one,
                own=one,
                mixed=one,
                dear=one,
                praised={WARM: truth, "own": truth},
            )
            for seed in (0, 1)
        ],
        with_kl={"seed-0-kl": one},
        judged={TOGETHER: (11, 12)},
    )


def test_the_first_reference_gives_back_the_grades_and_another_its_own():
    one = run(0, 0, np.random.default_rng(0))
    right, wrong = against(one, RIGHT), against(one, WRONG)
    assert [(s.grade, s.mean, s.spans, s.reference_logprob) for s in right.steps] == [
        (s.grade, s.mean, s.spans, s.reference_logprob) for s in one.steps
    ]
    assert list(right.steps[0].readings) == [RIGHT]
    # log 0.5·0.25 − log 0.125·0.5 = log 2, and log 0.5 − log 0.125 = log 4 of the prose.
    plain = against(Graded(trajectory_id="a", scenario_id="s", group_id="g", steps=(step(0),)), WRONG).steps[
        0
    ]
    assert (plain.grade, plain.mean) == pytest.approx((np.log(2), np.log(2) / 2))
    assert plain.spans == pytest.approx({"prose": np.log(4), "tool_name": -np.log(2)})
    assert plain.reference_logprob == pytest.approx(np.log(0.0625))
    assert wrong.truth == one.truth


def test_gains_of_values(tmp_path):
    """A step's value less the one before; before the first, the share of the scenario that succeeded."""
    rng = np.random.default_rng(1)
    runs = [run(0, k, rng) for k in range(4)]
    codec.write(tmp_path / "a.jsonl", map(trajectory, runs))
    start = np.mean([r.truth for r in runs])
    write_objects(
        tmp_path / "v.jsonl", [{"trajectory_id": runs[2].trajectory_id, "step_scores": [0.75, 0.0]}]
    )
    (line,) = read_objects(gains(tmp_path / "v.jsonl", tmp_path / "a.jsonl"))
    assert line["step_scores"] == pytest.approx([0.75 - start, -0.75])


def test_praised_are_first_wrong_steps_above_zero():
    """Two failures in two scenarios, one of which has its wrong step above 0; a success says nothing."""
    rng = np.random.default_rng(0)
    high, low = (replace(step(1), grade=grade) for grade in (0.5, -0.5))
    failed = replace(run(0, 0, rng), truth=0.0, first_wrong_step=1)
    graded = [
        replace(failed, steps=(step(0), high)),
        replace(failed, scenario_id="other", steps=(step(0), low)),
        replace(failed, truth=1.0, first_wrong_step=None),
    ]
    assert (praised(graded)["estimate"], praised(graded)["n"]) == (0.5, 2)


def test_what_counts_as_beaten():
    def gap(low, high):
        return {"estimate": (low + high) / 2, "low": low, "high": high}

    first = {"differences": {"a": gap(0.1, 0.2), "b": gap(-0.1, 0.2), "c": gap(-0.3, -0.1)}}
    second = {"differences": {"a": gap(0.01, 0.2), "b": gap(0.1, 0.2), "c": gap(-0.3, 0.1)}}
    assert tables.unbeaten([first, second]) == {"b": (1, 0), "c": (2, 1)}
    assert [tables.sign(first, name) for name in "abcd"] == [" *", "", " †", ""]
    assert held([first, second]) == "b (1 of 2); c (2 of 2). Surely better: c (1 of 2)"
    many = {"differences": {"x": gap(0.1, 0.2), **{str(k): gap(-0.1, 0.1) for k in range(9)}}}
    assert held([many]) == "all but x; surely better: none"
    assert held([{"differences": {"x": gap(0.1, 0.2)}}]).startswith("none: all 1 are")
    unknown = {"differences": {"a": {"estimate": None, "low": None, "high": None}}}
    assert tables.unbeaten([unknown]) == {"a": (1, 0)}


def test_the_page_holds_every_score_and_says_what_is_not_won(found):
    page = to_markdown(found)
    warm = found.measured[0].warm
    for verb in (warm.predict, warm.select, warm.attribute):
        for name in (*verb["results"], *verb["nulls"]):
            assert name in page
    assert page.count(tables.shown(tables.default(warm.predict))) >= 4
    counts = tables.unbeaten([warm.predict, warm.predict])
    assert counts[WRONG_SCORE] == (2, 0), "the same scores do not beat themselves"
    assert f"{WRONG_SCORE} (2 of 2)" in page
    assert "\n## Where it does not win\n" in page


def test_figure_and_json(found):
    ElementTree.fromstring(figure(found))
    fields = json.loads(json.dumps(to_json(found)))
    assert fields["measured"][1]["warm"]["predict"]["measure"] == "AUROC of success"


def test_trainings_and_given_runs(tmp_path):
    assert policies(2, 1) == [Policy(seed=0), Policy(seed=1), Policy(seed=0, kl_coef=KL)]
    assert len({policy.name for policy in policies(3, 3)}) == 6
    given = tmp_path / "given"
    given.mkdir()
    (given / "run.toml").write_text("[training]\nseed = 7\nkl_coef = 0.0\n")
    with pytest.raises(InputError):
        adapter(Policy(seed=7), tmp_path, [given])
    assert not (tmp_path / "seed-7").exists(), "a given run is not trained again"


def test_a_folder_of_another_setting_is_refused(tmp_path):
    Setting().keep_in(tmp_path)
    Setting().keep_in(tmp_path)
    with pytest.raises(InputError, match="begun with another setting"):
        Setting(seeds=2).keep_in(tmp_path)
