"""Win rate over the start: what the judge is not told, and the share of pairs by brute force."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.audit.versus import Match, match, revealed, win_rate
from strop.seeds import generator
from strop.trajectory.model import Trajectory, Turn


def attempt(scenario: str, side: str, number: int, failure: str | None = None) -> Trajectory:
    turn = Turn(prompt_ids=(1,), sampled_ids=(2,), logprobs=(-1.0,), finish_reason="stop", message_index=1)
    return Trajectory(
        trajectory_id=f"{scenario}/{side}/{number}",
        scenario_id=scenario,
        group_id=f"{scenario}/{side}",
        messages=({"role": "user", "content": "q"}, {"role": "assistant", "content": f"{side}{number}"}),
        turns=(turn,),
        truth=1.0 if side == "heldout-0004" else 0.0,
        failure=failure,
        unscored=failure,
        metadata={"attempt": number},
    )


def met(scenario: str, mine: int, theirs: int, seed: int = 0) -> Match:
    policy = [attempt(scenario, "heldout-0004", n) for n in range(mine)]
    start = [attempt(scenario, "heldout-before", n) for n in range(theirs)]
    return match(policy, start, "versus-0004", generator(seed, scenario))


def judged(scenario: str, mine: Sequence[float | None], theirs: Sequence[float | None]) -> Match:
    """A match whose attempts, by side and number, have these scores; None is unscored."""
    each = met(scenario, len(mine), len(theirs))
    scored = []
    for one in each.group.trajectories:
        origin = each.origins[one.trajectory_id]
        value = (mine if origin.side == "policy" else theirs)[int(origin.trajectory_id[-1])]
        scored.append(replace(one, score=value, unscored="timeout" if value is None else None))
    return replace(each, group=replace(each.group, trajectories=tuple(scored)))


def test_what_the_judge_gets_does_not_tell_the_sides_apart() -> None:
    """The words of the attempts are all that is left of them."""
    group = met("s", 3, 3).group
    told = json.dumps([asdict(t) for t in group.trajectories])
    for message in ("heldout-00040", "heldout-before0"):
        assert told.count(message) == 1
    bare = [replace(t, messages=()) for t in group.trajectories]
    assert "before" not in json.dumps([asdict(t) for t in bare])
    assert [t.trajectory_id for t in bare] == [f"s/versus-0004/{place}" for place in range(6)]
    assert len({json.dumps({**asdict(t), "trajectory_id": ""}) for t in bare}) == 1
    assert group.metadata == {}


def test_places_are_random_and_repeatable() -> None:
    """Over 400 scenarios each of 4 places is the policy's in about half: 5 standard errors are 0.125."""
    matches = [met(f"s{number}", 2, 2) for number in range(400)]
    mine = [[m.origins[t.trajectory_id].side == "policy" for t in m.group.trajectories] for m in matches]
    assert np.abs(np.mean(mine, axis=0) - 0.5).max() < 0.125
    assert len({tuple(row) for row in mine}) == 6
    assert met("s1", 2, 2) == met("s1", 2, 2)
    assert any(met("s1", 2, 2).origins != met("s1", 2, 2, seed=seed).origins for seed in range(1, 9))


def test_both_sides_must_be_of_one_scenario() -> None:
    with pytest.raises(ValueError, match="too many values"):
        match([attempt("a", "x", 0)], [attempt("b", "y", 0)], "n", generator(0))


def test_a_failed_attempt_is_neither_won_nor_lost() -> None:
    each = match([attempt("s", "p", 0, failure="deadline")], [attempt("s", "q", 0)], "n", generator(0))
    by_side = {each.origins[t.trajectory_id].side: t for t in each.group.trajectories}
    assert by_side["policy"].unscored == by_side["policy"].failure == "deadline"
    assert by_side["start"].unscored is None
    found = win_rate([each, judged("t", [1.0], [0.0]), judged("u", [1.0], [0.0])], generator(0))
    assert (found.estimate, found.n, found.excluded) == (1.0, 2, 1)


def test_by_hand() -> None:
    """s: 0.9 and 0.1 against 0.5 and 0.1: win, win, loss, tie. t: tie. u: win."""
    matches = [judged("s", [0.9, 0.1], [0.5, 0.1]), judged("t", [0.3], [0.3]), judged("u", [0.2], [0.1])]
    found = win_rate(matches, generator(0))
    assert found.estimate == pytest.approx((2.5 + 0.5 + 1.0) / 6)
    assert (found.n, found.clusters, found.excluded) == (6, 3, 0)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.estimate < found.high


def test_x46_nothing_judged_is_no_number_and_never_0() -> None:
    found = win_rate([judged("s", [None], [None]), judged("t", [None], [0.4])], generator(0))
    assert (found.estimate, found.low, found.n, found.excluded) == (None, None, 0, 2)
    assert found.method == "none: no observations"


def test_a_policy_against_itself_is_even() -> None:
    """The null: scores that know nothing of the sides, 300 scenarios; 5 standard errors are 0.145."""
    rng = generator(3)
    matches = [judged(f"s{n}", [rng.random()], [rng.random()]) for n in range(300)]
    found = win_rate(matches, generator(0))
    assert found.estimate == pytest.approx(0.5, abs=0.145)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5 < found.high


SCORES = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=3)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=4))
def test_the_share_is_that_of_all_pairs(scores: list[tuple[list[float | None], list[float | None]]]) -> None:
    matches = [judged(f"s{number}", mine, theirs) for number, (mine, theirs) in enumerate(scores)]
    pairs = [
        (a, b) for mine, theirs in scores for a in mine for b in theirs if a is not None and b is not None
    ]
    found = win_rate(matches, generator(0))
    assert found.n == len(pairs)
    if found.estimate is not None:
        won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs)
        assert found.estimate == pytest.approx(won / len(pairs))


def test_what_was_hidden_is_kept_beside_the_scores() -> None:
    each = judged("s", [0.9], [0.1])
    kept = {t.metadata["side"]: t for t in revealed(each)}
    assert kept["policy"].metadata["attempt_id"] == "s/heldout-0004/0"
    assert (kept["policy"].score, kept["start"].score) == (0.9, 0.1)
