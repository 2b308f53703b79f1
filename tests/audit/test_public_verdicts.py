"""Verdicts that others published, through our statistics, against the figures known of them."""

from pathlib import Path

import pytest
from studies.public_verdicts import agentprocessbench as agents
from studies.public_verdicts import known, llmbar
from studies.public_verdicts.sources import data_folder
from studies.publishing import FOLDER, ROOT

from strop.stats.intervals import Estimate

PAIRS, RUNS = data_folder("llmbar"), data_folder("agentprocessbench")
needs_pairs = pytest.mark.skipif(not PAIRS.exists(), reason=f"no data at {PAIRS}; set STROP_DATA")
needs_runs = pytest.mark.skipif(not RUNS.exists(), reason=f"no data at {RUNS}; set STROP_DATA")
FEW = 200
"""Resamples: enough where only the estimate is compared."""


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str, str], llmbar.Row]:
    return {(row.model, row.prompt, row.subset): row for row in llmbar.rows(PAIRS, FEW)}


@pytest.fixture(scope="module")
def figures() -> agents.Figures:
    return agents.figures(RUNS)


def in_percent(estimate: Estimate) -> float:
    assert estimate.estimate is not None
    return round(100 * estimate.estimate, 1)


# The published figures, to the decimal printed: choices right in both orders together, same choice.
GPT4 = {
    "Natural": (95.5, 95.0),
    "Adversarial_GPTInst": (86.4, 94.6),
    "Adversarial_GPTOut": (77.7, 93.6),
    "Adversarial_Manual": (80.4, 82.6),
    "Adversarial_Neighbor": (78.7, 93.3),
}
CHATGPT = {
    "Natural": (81.5, 71.0),
    "Adversarial_GPTInst": (26.6, 62.0),
    "Adversarial_GPTOut": (41.5, 59.6),
    "Adversarial_Manual": (34.8, 52.2),
    "Adversarial_Neighbor": (19.4, 71.6),
}


@needs_pairs
@pytest.mark.parametrize(("model", "published"), [("GPT-4", GPT4), ("ChatGPT", CHATGPT)])
def test_right_and_same_choices_are_as_published(
    rows: dict[tuple[str, str, str], llmbar.Row], model: str, published: dict[str, tuple[float, float]]
) -> None:
    checks = {subset: rows[model, "Vanilla", subset].check for subset in llmbar.SUBSETS}
    found = {name: (in_percent(c.accuracy), in_percent(c.consistency)) for name, c in checks.items()}
    assert found == published


@needs_pairs
def test_all_that_the_authors_published_is_met(rows: dict[tuple[str, str, str], llmbar.Row]) -> None:
    given = [(row, llmbar.stated(PAIRS, row)) for row in rows.values()]
    published = [(row, theirs) for row, theirs in given if theirs is not None]
    assert len(published) == 10
    for row, theirs in published:
        assert len(theirs) == 9
        assert llmbar.same_figures(llmbar.made_alike(row), theirs), (row.subset, row.model)


@needs_pairs
def test_a_figure_that_is_off_by_one_is_not_met(rows: dict[tuple[str, str, str], llmbar.Row]) -> None:
    row = rows["GPT-4", "Vanilla", "Natural"]
    theirs = dict(llmbar.stated(PAIRS, row) or {})
    assert not llmbar.same_figures(llmbar.made_alike(row), theirs | {"equal": "94 / 100 = 94.0%"})
    assert not llmbar.same_figures(llmbar.made_alike(row), theirs | {"kappa_agreement": 0.8977})


@needs_pairs
def test_kappa_with_the_label_coded_alike_is_as_worked_out_by_hand(
    rows: dict[tuple[str, str, str], llmbar.Row],
) -> None:
    # 95 of 100 right; the better answer is the first in 42, the judge chose the first in 43.
    expected = 0.43 * 0.42 + 0.57 * 0.58
    found = rows["GPT-4", "Vanilla", "Natural"].label_kappas[0]
    assert found == pytest.approx((0.95 - expected) / (1 - expected), abs=1e-12)


@needs_pairs
def test_a_choice_that_was_not_made_is_left_out_and_counted(
    rows: dict[tuple[str, str, str], llmbar.Row],
) -> None:
    check = rows["ChatGPT", "CoT", "Natural"].check
    assert (check.accuracy.n, check.accuracy.excluded, check.consistency.n) == (199, 1, 99)


@needs_pairs
def test_the_longer_answer_is_a_trap_on_the_adversarial_subsets() -> None:
    longer = {null.subset: in_percent(null.longer) for null in llmbar.nulls(PAIRS, FEW)}
    assert longer == {
        "Natural": 56.5,
        "Adversarial_GPTInst": 13.0,
        "Adversarial_GPTOut": 44.7,
        "Adversarial_Manual": 18.5,
        "Adversarial_Neighbor": 11.9,
    }


# Two sets, counted by a loop over ordered pairs that shares no code with the one under test: by final
# label and by mean step label with the files as they are, passes of the 239 failed runs, failed calls.
TWO_SETS = {
    "Gemini-3-Flash-Preview": (0.7344, 0.7438, 0.5397, 0),
    "GPT-5.2": (0.7094, 0.7016, 0.2636, 0),
    "DeepSeek-V3.2": (0.7063, 0.6500, 0.4854, 0),
    "Qwen3-8B-Thinking": (0.6469, 0.6188, 0.5021, 1),
    "Llama-3.3-70B-Instruct": (0.5969, 0.6195, 0.7657, 1),
    "Qwen3-4B-Instruct-2507": (0.6031, 0.5531, 0.7238, 0),
    "Llama-3.2-3B-Instruct": (0.5828, 0.6240, 0.6276, 55),
}


@needs_runs
def test_judges_of_runs_on_the_two_sets(figures: agents.Figures) -> None:
    if figures.sets != ("bfcl", "hotpotqa"):
        pytest.skip(f"the sets here are {figures.sets}")
    assert (figures.runs, figures.tasks, figures.fewer.n, figures.fewer.clusters) == (500, 100, 320, 62)
    found = {
        row.judge: [*(round(e.estimate or 0, 4) for e in _shares(row.stored)), row.failed_calls]
        for row in figures.rows
    }
    for judge, shares in TWO_SETS.items():
        assert found[judge] == pytest.approx(list(shares), abs=6e-5), judge
    assert round(figures.fewer.estimate or 0, 4) == 0.2969
    assert round(figures.human_steps.estimate or 0, 4) == 0.9578


@needs_runs
def test_judges_of_runs_on_all_four_sets(figures: agents.Figures) -> None:
    if figures.sets != agents.ALL_SETS:
        pytest.skip(f"of the four sets only {', '.join(figures.sets)} are here")
    assert known.differs(figures) == []


@needs_runs
def test_a_failed_call_is_not_a_label(figures: agents.Figures) -> None:
    row = next(row for row in figures.rows if row.judge == "Llama-3.2-3B-Instruct")
    assert row.scored.final.excluded == row.failed_calls > 0
    assert row.scored.final.n < row.stored.final.n


@needs_runs
def test_where_the_known_figures_are_missed_it_is_said(figures: agents.Figures) -> None:
    if figures.sets == agents.ALL_SETS:
        pytest.skip("all four sets are here")
    assert set(known.differs(figures)) >= {"pairs", "fewer steps", "GPT-5.2", "Llama-3.2-3B-Instruct"}


@needs_runs
def test_the_audit_of_a_run_reads_them_too() -> None:
    audits = agents.audits(RUNS)
    assert audits["GPT-5.2"].beats_nulls is True
    weak = audits["Llama-3.3-70B-Instruct"]
    assert weak.beats_nulls is False
    assert "longer wins" in weak.verdict
    assert weak.results[weak.default].n == 130  # 26 mixed tasks of 163 passes and 87 fails


@needs_pairs
def test_the_page_holds_the_figures(rows: dict[tuple[str, str, str], llmbar.Row]) -> None:
    page = (ROOT / FOLDER / "public-verdicts.md").read_text(encoding="utf-8")
    for row in rows.values():
        line = next(text for text in section(page, row) if text.startswith(f"| {row.model} {row.prompt} |"))
        assert line.split("|")[2].split()[0] == str(in_percent(row.check.accuracy))


def section(page: str, row: llmbar.Row) -> list[str]:
    """Lines of the page about the row's subset."""
    return page.partition(f"### {row.subset.replace('_', ', ')}\n")[2].partition("###")[0].splitlines()


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dataset\.json: no such data at .*STROP_DATA"):
        list(llmbar.nulls(tmp_path))


def _shares(reading: agents.Reading) -> tuple[Estimate, Estimate, Estimate]:
    return reading.final, reading.steps, reading.passes_failed
