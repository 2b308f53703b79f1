"""The study of orders: its simulated judge by hand, and what it claims, on 200 groups a setting."""

from xml.etree import ElementTree

import numpy as np
import pytest
from studies.judge_orders.figure import figure
from studies.judge_orders.page import to_json, to_markdown
from studies.judge_orders.results import Results, cell, curve, thresholds
from studies.judge_orders.simulate import Judged, Setting, simulate, taus

GROUPS = 200
CLAIM = 0.08


@pytest.fixture(scope="module", params=[(4, 1.5), (8, 1.5), (4, -2.0), (8, -2.0)], ids=str)
def judged(request: pytest.FixtureRequest) -> Judged:
    attempts, strength = request.param
    return simulate(Setting(attempts=attempts, strength=strength), GROUPS, "test")


def test_the_default_is_above_two_calls_in_one_order_or_in_random_ones(judged: Judged) -> None:
    ours = taus(judged.default())
    for other in ("fixed x2", "random x2"):
        assert np.nanmean(ours - taus(judged.by_plan[other])) >= CLAIM


def test_it_is_above_as_many_calls_in_one_order_or_in_random_ones(judged: Judged) -> None:
    more = np.random.default_rng(0).permutation(judged.escalated(0.75))
    assert 0.2 < more.mean() < 1
    for other in ("fixed", "random"):
        assert np.nanmean(taus(judged.default()) - taus(judged.mixed(other, more))) > 0.02


def test_reliability_tells_good_groups_from_bad(judged: Judged) -> None:
    tau = taus(judged.by_plan["mirrored x2"])
    low, high = np.quantile(judged.reliability, [0.3, 0.7])
    assert np.nanmean(tau[judged.reliability >= high]) > np.nanmean(tau[judged.reliability <= low]) + 0.05


def test_a_judge_without_noise_is_right_in_any_order() -> None:
    judged = simulate(Setting(attempts=4, strength=0, noise=0.0), 20, "test")
    assert set(judged.reliability) == {1.0}
    for rated in judged.by_plan.values():
        assert np.nanmin(taus(rated)) > 0.9  # rounded scores may tie
    assert judged.default() == list(judged.by_plan["mirrored x2"])


def test_an_overwhelming_place_is_all_that_one_order_shows() -> None:
    judged = simulate(Setting(attempts=4, strength=40.0, noise=0.0), 20, "test")
    assert max(group.scores[0] or 0 for group in judged.by_plan["fixed x4"]) == 1
    assert all(group.scores[0] > group.scores[3] for group in judged.by_plan["fixed x4"])  # type: ignore[operator]
    # Two pairs of places look alike from either side, four are turned round.
    assert judged.reliability.max() == pytest.approx(2 / 6)
    assert judged.default() == list(judged.by_plan["mirrored x4"])


def test_the_ends_are_favoured_in_both_of_two_mirrored_orders() -> None:
    judged = simulate(Setting(attempts=8, strength=40.0, effect="ends", noise=0.0), 20, "test")
    for group in judged.by_plan["fixed x2"]:
        scores = np.array(group.scores, dtype=np.float64)
        assert scores[[0, 7]].min() == 1
        assert scores[1:7].max() < 1
    assert min(judged.reliability) == 1  # though half of what it says is the place


def test_page_json_and_figure() -> None:
    settings = [Setting(attempts=n, strength=s) for n in (4, 8) for s in (0.0, 1.0)]
    found = Results(
        groups=12,
        cells=[cell(setting, 12) for setting in settings],
        thresholds=thresholds(4),
        curves=[curve(Setting(attempts=n, strength=1.0, noise=None), 30) for n in (4, 8)],
    )
    page = to_markdown(found)
    assert "| 8 | linear 1 |" in page
    assert "nan" not in page
    first = to_json(found)["cells"][0]
    assert first["setting"]["attempts"] == 4
    assert {"estimate", "low", "high", "n", "method"} <= first["default_above"]["random x2"].keys()
    assert 2 <= first["calls"]["estimate"] <= 4
    drawn = ElementTree.fromstring(figure(found))
    lines = [e for e in drawn.iter() if e.get("class", "").startswith("line ")]
    assert len(lines) == 4 + 4 + 2
