"""The study of advantages: its judge and gradient against others' arithmetic, and its main direction."""

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from studies.advantages import learner, results
from studies.advantages.figure import SHOWN, figure
from studies.advantages.judging import judged, noise_of_two
from studies.advantages.learner import (
    Setting,
    choices,
    gradient,
    group_advantages,
    learn,
    probabilities,
    quality,
    share_of_best,
)
from studies.advantages.page import to_json, to_markdown
from studies.advantages.results import ALONE, MAIN, MORE, PLACES, PLAIN, REFERENCE, Results, family
from studies.advantages.worlds import FEATURES, WORLDS, Array, Kind, Scenarios, World, scenarios, weights

from strop.judge.combine import Ballot, combine
from strop.training.advantages import Scale

RATES = (0.04, 0.08, 0.16)
BY_NAME = {world.name: world for world in WORLDS}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def some(world: World, count: int = 5, runs: int = 3) -> Scenarios:
    return scenarios(world, weights(runs, rng(1)), count, rng(2))


@pytest.fixture(scope="module")
def reached() -> dict[str, dict[str, Array]]:
    """Share of the best by world and scale with two orders, the best of three rates, 16 runs."""
    settings: dict[str, Setting] = {
        "floor": Setting(times_noise=1),
        "std": Setting(),
        "none": Setting(scale="none"),
    }
    return {
        world: {name: _best(BY_NAME[world], setting) for name, setting in settings.items()}
        for world in ("near-ties", "undecidable", "uneven noise")
    }


def _best(world: World, setting: Setting) -> Array:
    shares = learn(world, setting, RATES, 16, "test")[-1]
    best: Array = shares[shares.mean(axis=-1).argmax()]
    return best


@pytest.mark.parametrize("world", ["undecidable", "uneven noise"])
def test_without_scaling_the_noisiest_groups_lead_the_update(
    reached: dict[str, dict[str, Array]], world: str
) -> None:
    assert (reached[world]["floor"] - reached[world]["none"]).mean() > 0.02
    assert (reached[world]["std"] - reached[world]["none"]).mean() > 0.02


def test_the_floor_costs_nothing_where_noise_is_large(reached: dict[str, dict[str, Array]]) -> None:
    for by_name in reached.values():
        assert (by_name["floor"] - by_name["std"]).mean() > -0.02


def test_a_second_order_pays_where_places_count_and_not_where_they_do_not() -> None:
    one, two = Setting(orders=1), Setting(times_noise=1)
    strong, absent = replace(BY_NAME["places"], position=0.8), BY_NAME["exact"]
    assert (_best(strong, two) - _best(strong, one)).mean() > 0.03
    assert (_best(absent, one) - _best(absent, two)).mean() > 0.01


def test_quality_by_chance_has_the_spread_asked_for() -> None:
    given = some(World(name="x", words="", kinds=(Kind(spread=0.2),)), count=400)
    chosen = choices(np.full((1, 3, 400, 4, 4), 0.25), 16, rng())
    true = quality(given, chosen)
    assert true.mean() == pytest.approx(0.0, abs=0.005)
    assert true.std() == pytest.approx(0.2, rel=0.03)


def test_the_best_policy_reaches_one_and_chance_none() -> None:
    given = some(BY_NAME["exact"])
    assert share_of_best(np.zeros((1, 3, FEATURES)), given) == pytest.approx(0.0, abs=1e-12)
    # Worth that is one of the features can be chosen without fail.
    known = Scenarios(
        features=given.features,
        worth=given.features[..., 0] - given.features[..., 0].mean(axis=-1, keepdims=True),
        noise=given.noise,
        squeeze=given.squeeze,
    )
    policy = np.zeros((1, 3, FEATURES))
    policy[..., 0] = 1e6
    assert share_of_best(policy, known) == pytest.approx(1.0)


def test_an_exact_judge_scores_quality_to_the_step() -> None:
    given = some(BY_NAME["exact"])
    true = quality(given, choices(probabilities(np.zeros((1, 3, FEATURES)), given), 8, rng()))
    verdicts = judged(BY_NAME["exact"], given, true, 2, rng())
    np.testing.assert_allclose(verdicts.scores, np.rint(np.clip(0.5 + true, 0, 1) * 20) / 20, atol=1e-9)
    assert not verdicts.noise.any()


def test_places_cancel_over_an_order_and_its_reverse_and_not_in_one() -> None:
    world = World(name="x", words="", kinds=(Kind(spread=0.0, noise=0.0),), position=0.7)
    given = some(world)
    two = judged(world, given, np.zeros((1, 3, 5, 8)), 2, rng())
    np.testing.assert_allclose(two.scores, 0.5)
    one = judged(world, given, np.zeros((1, 3, 5, 8)), 1, rng())
    assert np.sort(one.scores[0, 0, 0]).tolist() == [0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85]


def test_two_orders_are_combined_as_the_judge_does() -> None:
    calls = np.round(rng().integers(0, 21, size=(2, 40, 6)) * 0.05, 6)
    calls[:, rng(1).random((40, 6)) < 0.2] = np.nan
    ours = noise_of_two(calls)
    for group in range(40):
        ballots = [
            Ballot(scores={str(i): float(s) for i, s in enumerate(call[group]) if not np.isnan(s)})
            for call in calls
        ]
        theirs = combine(ballots, "mean", "listwise")
        assert ours[group] == pytest.approx(theirs.noise or 0.0, abs=1e-12)
        for name, score in theirs.scores.items():
            assert round(float(calls[:, group, int(name)].mean()), 6) == score


def test_unscored_attempts_teach_nothing() -> None:
    world = replace(BY_NAME["unscored"], unscored=0.5)
    verdicts = judged(world, some(world), rng().normal(0, 0.2, size=(2, 3, 5, 8)), 2, rng())
    absent = np.isnan(verdicts.scores)
    assert 0.3 < absent.mean() < 0.7
    assert not group_advantages(verdicts, Setting())[absent].any()


@pytest.mark.parametrize("attempts", [4, 8])
@pytest.mark.parametrize("scale", ["std", "none", "rank"])
def test_leave_one_out_is_a_learning_rate_in_groups_of_one_size(attempts: int, scale: Scale) -> None:
    world = BY_NAME["small noise"]
    setting = Setting(scale=scale, attempts=attempts, optimizer="sgd")
    rate = 2.0
    alone = learn(world, replace(setting, leave_one_out=True), (rate,), 2, "test")
    scaled = learn(world, setting, (rate * attempts / (attempts - 1),), 2, "test")
    np.testing.assert_allclose(alone, scaled, rtol=1e-9)


def test_the_gradient_is_that_of_the_weighted_log_probability() -> None:
    given = some(BY_NAME["small noise"])
    policy = 0.3 * rng(3).standard_normal((1, 3, FEATURES))
    odds = probabilities(policy, given)
    chosen = choices(odds, 4, rng(4))
    advantage = rng(5).standard_normal((1, 3, 5, 4))

    def objective(at: Array) -> Array:
        logs = np.log(probabilities(at, given))[:, :, :, None]
        weighted: Array = advantage * (logs * chosen).sum(axis=(-2, -1))
        return weighted.mean(axis=(-2, -1))

    exact = gradient(given, odds, chosen, advantage)
    for coordinate in (0, 17, FEATURES - 1):
        step = np.zeros(FEATURES)
        step[coordinate] = 1e-5
        slope = (objective(policy + step) - objective(policy - step)) / 2e-5
        np.testing.assert_allclose(exact[..., coordinate], slope, rtol=1e-6, atol=1e-9)


def test_the_same_phase_gives_the_same_runs_and_another_gives_others() -> None:
    world, setting = BY_NAME["small noise"], Setting()
    first = learn(world, setting, (0.08,), 2, "test")
    np.testing.assert_array_equal(first, learn(world, setting, (0.08,), 2, "test"))
    assert (first != learn(world, setting, (0.08,), 2, "other")).all()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Results]:
    """The whole study in short: eight updates, two runs."""
    monkeypatch.setattr(learner, "UPDATES", 8)
    monkeypatch.setattr(learner, "HELD_OUT", 8)
    monkeypatch.setattr(results, "TUNING_RUNS", 2)
    monkeypatch.setattr(results, "RATES", {"adam": (0.04, 0.16), "sgd": (0.5, 2.0)})
    shown = [BY_NAME[name] for name in (*SHOWN, "places")]
    places = [World(name=f"{place:g}", words="", position=place) for place in PLACES]
    two = {name: MAIN[name] for name in (REFERENCE, "one order: std")}
    unscored = BY_NAME["unscored"]
    sizes = {n: family({k: replace(s, attempts=n) for k, s in MAIN.items()}, shown, 2) for n in (8, 4)}
    yield Results(
        runs=2,
        sizes=sizes,
        more=family({**two, **MORE}, shown[:1], 2),
        alone={8: family(ALONE, [unscored], 2)},
        plain=family(PLAIN, shown[:1], 2),
        places=family(two, places, 2),
        again={n: results.again(found, 2) for n, found in sizes.items()},
    )
    results.forget()


def test_page_json_and_figure(small: Results) -> None:
    page = to_markdown(small)
    assert "nan" not in page
    for name in (*MAIN, *SHOWN):
        assert f"| {name} |" in page
    found = to_json(small)["families"]["8 attempts"]
    assert len(found) == len(MAIN) * (len(SHOWN) + 1)
    assert {"estimate", "low", "high", "n", "method"} <= found[0]["share"].keys()
    drawn = ElementTree.fromstring(figure(small))
    lines = [e for e in drawn.iter() if e.get("class", "").startswith("line ")]
    assert len(lines) == 4 * len(SHOWN) + 2
