"""The study that holds our learning curve against TRL's: its arithmetic, its page, and a short race."""

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from studies.learning_curve.page import figure, to_json, to_markdown
from studies.learning_curve.results import WINDOWS, Results, gap, results
from studies.learning_curve.task import GROUPS, LENGTH, WORDS, Setting, prompts, reward

PEER = os.environ.get("STROP_TRL_PYTHON")


def curves(seed: int, level: float, seeds: int = 4, steps: int = 50) -> dict[int, list[float]]:
    rng = np.random.default_rng(seed)
    return {n: (level + 0.05 * rng.standard_normal(steps)).tolist() for n in range(seeds)}


def test_the_reward_is_the_share_of_a() -> None:
    assert (reward(""), reward("banana"), reward("a" * LENGTH)) == (0.0, 3 / LENGTH, 1.0)


def test_prompts_go_round_in_order() -> None:
    seen = [prompt for step in range(len(WORDS)) for prompt in prompts(step)]
    assert seen == [*WORDS, *WORDS][: GROUPS * len(WORDS)]


def test_the_interval_is_welch_s() -> None:
    ours, other = curves(0, 0.5, 5), curves(1, 0.6, 8)
    found = gap(ours, other, 10, 30)
    a, b = ([np.mean(c[10:30]) for c in side.values()] for side in (ours, other))
    expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx((expected.low, expected.high))
    assert found.difference.estimate == pytest.approx(np.mean(b) - np.mean(a))
    assert found.ours_sd == pytest.approx(np.std(a, ddof=1))


def test_what_counts_as_within_the_spread() -> None:
    """0.5 and 0.6 in every seed but for noise of 0.01: far outside; 0.5 and 0.5: inside."""
    assert not gap(curves(0, 0.5), curves(1, 0.6), 0, 50).within_spread
    assert gap(curves(0, 0.5), curves(2, 0.5), 0, 50).within_spread


def test_the_page_says_when_they_do_not_agree() -> None:
    def page(level: float) -> str:
        return to_markdown(found(level))

    def found(level: float) -> Results:
        ours, theirs = curves(0, 0.5), curves(2, level)
        return Results(setting=Setting(), peer_version="1.0", ours=ours, theirs=theirs, slower=curves(3, 0.2))

    assert "strop's do not agree" in page(0.6)
    assert f"{len(WINDOWS)} of {len(WINDOWS)} windows differ" in page(0.6)
    ET.fromstring(figure(found(0.6)))
    assert len(to_json(found(0.6))["trl_minus_ours"]) == len(WINDOWS)


def test_the_page_that_is_kept_shows_agreement_and_a_difference_that_is_seen() -> None:
    page = (Path(__file__).parents[2] / "docs/studies/learning-curve.md").read_text()
    assert "In every window TRL's mean reward and strop's agree within their spread over seeds." in page
    assert "With a third of the rate 5 of 5 windows differ" in page


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PEER, reason="STROP_TRL_PYTHON names no Python with trl")
def test_both_learn_side_by_side(one_thread: None) -> None:
    """Three seeds of a shorter run: both learn, and at about the same time."""
    assert PEER is not None
    found = results(PEER, 3, Setting(steps=40))
    for side in (found.ours, found.theirs):
        assert all(len(curve) == 40 for curve in side.values())
        assert all(np.mean(curve[-5:]) > np.mean(curve[:5]) + 0.3 for curve in side.values())
    assert abs(gap(found.ours, found.theirs, 0, 40).difference.estimate or 0) < 0.15
