"""The study of progress advantage: uses against the grader's own, claims, page and figures."""

from xml.etree import ElementTree

import numpy as np
import pytest
from studies.progress_advantage import cases, results, sweeps, uses
from studies.progress_advantage.attempts import Attempts, draw, first_bad
from studies.progress_advantage.cases import at_optimum, ground, row
from studies.progress_advantage.figure import sweeps_figure, uses_figure
from studies.progress_advantage.mdp import Family
from studies.progress_advantage.page import to_json, to_markdown
from studies.progress_advantage.scores import CENTRED, GRADE, LOGPROB, REFERENCE, grade, scores
from studies.progress_advantage.words import lengths

from strop.grader import attribute, predict, select
from strop.grader.grade import Graded, StepGrade

WORLDS = 60


@pytest.fixture(scope="module", autouse=True)
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        for module in (uses, cases):
            patch.setattr(module, "RESAMPLES", 200)
        yield


@pytest.fixture(scope="module")
def stochastic() -> results.Uses:
    return results.uses("stochastic", 2 * WORLDS, Family())


def graded(attempts: Attempts, case: cases.Case, culprits: dict[tuple[int, int], int]) -> list[Graded]:
    """The attempts as the grader writes them."""
    tables = (grade(case.policy, case.reference, case.beta), case.policy, case.reference)
    grades, ours, theirs = (attempts.steps(table) for table in tables)
    made = []
    for w, n in np.ndindex(attempts.success.shape):
        words = lengths(case.policy.shape[-1])[attempts.actions[w, n]].astype(int)
        steps = [
            StepGrade(
                index=t,
                message_index=t,
                n_tokens=int(words[t]),
                grade=float(g),
                mean=float(g) / int(words[t]),
                policy_logprob=float(ours[w][n][t]),
                reference_logprob=float(theirs[w][n][t]),
                entropy=0.0,
                self_certainty=0.0,
                deepconf=0.0,
            )
            for t, g in enumerate(grades[w][n])
        ]
        made.append(
            Graded(
                trajectory_id=f"{w}-{n}",
                scenario_id=str(w),
                group_id=str(w),
                beta=case.beta,
                steps=tuple(steps),
                truth=float(attempts.success[w, n]),
                first_wrong_step=culprits.get((w, n)),
            )
        )
    return made


def test_the_uses_are_the_graders_own():
    """Estimates only: both sides resample with other seeds."""
    case = at_optimum(*ground(WORLDS))
    attempts = draw(case.worlds, case.acting, 8, np.random.default_rng(0))
    tables = scores(case.worlds, case.policy, case.reference, case.beta)
    best = results.best_values(case.worlds)
    failed, _ = uses.failures(attempts, best.v[:, :-1, :, None] - best.q, lambda r: first_bad(r, 0.1))
    runs = graded(attempts, case, {(f.world, f.attempt): f.step for f in failed})
    totals, rng = uses.totals(attempts, tables), np.random.default_rng(0)
    picked = select.select(runs, rng, resamples=50)
    ours = uses.select(attempts, totals).results
    assert ours[GRADE].estimate == pytest.approx(picked.results[select.DEFAULT].estimate)
    assert ours[LOGPROB].estimate == pytest.approx(picked.nulls[LOGPROB].estimate)
    assert ours["random"].estimate == pytest.approx(picked.nulls["random"].estimate)
    told = predict.predict(runs, rng, resamples=50)
    ours = uses.predict(attempts, totals).results
    assert ours[GRADE].estimate == pytest.approx(told.results[predict.DEFAULT].estimate, abs=1e-6)
    assert ours[REFERENCE].estimate == pytest.approx(told.nulls[REFERENCE].estimate, abs=1e-6)
    named = attribute.attribute(runs, rng, resamples=50)
    ours = uses.attribute(attempts, {GRADE: tables[GRADE]}, failed).results
    assert ours[GRADE].estimate == pytest.approx(named.results[attribute.DEFAULT].estimate)
    assert ours["last step"].estimate == pytest.approx(named.nulls["last step"].estimate)
    assert ours[GRADE].n == named.results[attribute.DEFAULT].n


def test_another_beta_of_the_grader_changes_no_order():
    case = at_optimum(*ground(20))
    attempts = draw(case.worlds, case.acting, 8, np.random.default_rng(0))
    one, ten = (uses.summed(attempts, grade(case.policy, case.reference, b)) for b in (0.2, 2.0))
    assert ten == pytest.approx(10 * one)
    assert (uses.picks(one, attempts.success) == uses.picks(ten, attempts.success)).all()


def test_in_stochastic_worlds_it_beats_the_nulls(stochastic):
    for use in (stochastic.select, stochastic.predict):
        for null in (LOGPROB, REFERENCE, "fewer steps", "more steps", "random"):
            assert use.differences[null].estimate > 0.03, null
    for null in (LOGPROB, "uniform guess", "longest step", "first step", "last step"):
        assert stochastic.first.differences[null].low > 0, null
    assert stochastic.select.differences["oracle"].high < 0
    assert stochastic.luckless > 0


def test_without_chance_the_sum_orders_every_pair():
    found = results.uses("deterministic", WORLDS, Family(chance=0.0))
    assert found.order.results[GRADE].estimate == 1
    assert found.predict.results[GRADE].estimate == 1
    assert found.predict.results[CENTRED].high < 0.95


def test_chance_takes_the_sum_from_success_but_not_the_step_from_its_advantage():
    rows = [row("", c, at_optimum(*ground(WORLDS, Family(chance=c)))) for c in (0.0, 0.4, 1.0)]
    assert [r.step.estimate for r in rows] == pytest.approx([1, 1, 1])
    by_sum = [r.attempt[GRADE].estimate for r in rows]
    assert by_sum[0] == pytest.approx(1)
    assert by_sum[0] - 0.3 > by_sum[1] > by_sum[2] + 0.05


def test_stopped_early_it_is_a_poorer_advantage(monkeypatch):
    monkeypatch.setattr(sweeps, "GRADIENT_STEPS", (1, 16, 64))
    rows = sweeps.by_training(WORLDS, natural=False)
    reached, alike = [r.at for r in rows], [r.step.estimate for r in rows]
    assert reached == sorted(reached)
    assert alike == sorted(alike)
    assert alike[0] < 0.7
    assert alike[-1] == pytest.approx(1)


def test_a_wrong_reference_and_noise_cost(monkeypatch):
    rows = {r.label: r for r in sweeps.by_reference(WORLDS)}
    assert rows["noise 0"].step.estimate == pytest.approx(1)
    assert rows["unrelated"].step.estimate < 0.5
    assert rows["unrelated"].centring.low > 0 > rows["noise 0"].centring.estimate
    assert rows["unrelated"].length[GRADE].low > 0.4
    noisy = [r.step.estimate for r in sweeps.by_noise(WORLDS)]
    assert noisy == sorted(noisy, reverse=True)


def test_clipping_alone_has_no_beta_and_moves_on(monkeypatch):
    monkeypatch.setattr(sweeps, "UPDATES", (1, 8, 32))
    rows, drifts = sweeps.by_clipping(20)
    assert drifts[0].largest_update < 0.1
    assert drifts[-1].from_reference.low > 10 * drifts[0].from_reference.high
    assert drifts[-1].likest_beta < drifts[0].likest_beta
    assert rows[-1].success.estimate > rows[0].success.estimate + 0.1
    assert rows[-1].above.high < 0


def test_page_json_and_figures(monkeypatch):
    monkeypatch.setattr(sweeps, "GRADIENT_STEPS", (1, 4))
    monkeypatch.setattr(sweeps, "NATURAL_STEPS", (1, 4))
    monkeypatch.setattr(sweeps, "UPDATES", (1, 4))
    found = results.results(12)
    page, written = to_markdown(found), to_json(found)
    assert "nan" not in page
    assert "| new request | refund | 0.60 |" in page
    assert {"estimate", "low", "high", "n", "method"} <= written["sweeps"]["beta"][0]["step"].keys()
    assert written["stochastic"]["advantage"] < 1e-12
    panels = ElementTree.fromstring(sweeps_figure(found))
    assert len([e for e in panels.iter() if e.get("class", "").startswith("line ")]) == 6 * 4
    marks = ElementTree.fromstring(uses_figure(found.uses[0]))
    assert len([e for e in marks.iter() if e.get("class", "").startswith("mark ")]) == 8 + 7 + 7 + 9
