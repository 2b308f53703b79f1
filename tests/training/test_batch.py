"""Who is trained with which advantage, and whether everybody is accounted for."""

from dataclasses import replace

import pytest

from strop.training.batch import AdvantageRule, training_batch
from strop.trajectory.model import Group, Trajectory, Turn


def turn(prompt: tuple[int, ...], sampled: tuple[int, ...]) -> Turn:
    return Turn(
        prompt_ids=prompt,
        sampled_ids=sampled,
        logprobs=(-1.0,) * len(sampled),
        finish_reason="stop",
        message_index=1,
    )


ONE_TURN = (turn((1, 2), (3, 4)),)
TWO_TURNS = (turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 9), (5,)))
FORKED = (turn((1, 2), (3, 4)), turn((1, 9), (5,)))


def attempt(
    name: str,
    score: float | None,
    turns: tuple[Turn, ...] = ONE_TURN,
    *,
    unscored: str | None = None,
    failure: str | None = None,
) -> Trajectory:
    return Trajectory(
        trajectory_id=name,
        scenario_id="s",
        group_id=name[0],
        messages=(),
        turns=turns,
        score=score,
        unscored=unscored or failure,
        failure=failure,
    )


def group(name: str, *members: Trajectory) -> Group:
    return Group(group_id=name, scenario_id="s", trajectories=members)


def test_t34_the_advantage_is_the_trajectory_s_however_many_turns_it_took() -> None:
    """Turn-weighted baselines give +0.6455 / -1.2910 here; trajectory level is ±0.8660 (T34)."""
    members = [
        attempt("a0", 1.0, TWO_TURNS),
        attempt("a1", 0.0),
        attempt("a2", 1.0, FORKED),
        attempt("a3", 0.0),
    ]
    batch = training_batch([group("a", *members)], AdvantageRule())
    by_row = [
        (row.trajectory_id, round(value, 4)) for row, value in zip(batch.rows, batch.advantages, strict=True)
    ]
    assert by_row == [("a0", 0.8660), ("a1", -0.8660), ("a2", 0.8660), ("a2", 0.8660), ("a3", -0.8660)]


def test_t35_every_sampled_token_of_every_step_is_in_the_mask() -> None:
    """Earlier steps must not lose their advantage to the last step's mask (T35)."""
    batch = training_batch([group("a", attempt("a0", 1.0, TWO_TURNS), attempt("a1", 0.0))], AdvantageRule())
    assert batch.rows[0].ids.tolist() == [1, 2, 3, 4, 9, 5]
    assert batch.rows[0].mask.tolist() == [False, False, True, True, False, True]
    assert batch.trained_tokens == 5


def test_t33_groups_with_equal_prompts_stay_apart() -> None:
    """Keyed by prompt, 0000 and 1111 would give ∓0.5714 instead of two ties (T33)."""
    zeros = group("a", *(attempt(f"a{i}", 0.0) for i in range(4)))
    ones = group("b", *(attempt(f"b{i}", 1.0) for i in range(4)))
    batch = training_batch([zeros, ones], AdvantageRule())
    assert batch.rows == []
    assert batch.groups["tied"] == 2


def test_everybody_is_counted_once() -> None:
    groups = [
        group(
            "a",
            attempt("a0", 1.0, FORKED),
            attempt("a1", 0.0),
            attempt("a2", None, failure="deadline: no end after 1 s"),
            attempt("a3", None, unscored="timeout"),
            attempt("a4", 0.5, ()),
        ),
        group("b", attempt("b0", 0.5), attempt("b1", 0.5)),
        group("c", attempt("c0", 0.5), attempt("c1", None, unscored="refusal")),
        group(
            "d", attempt("d0", None, unscored="empty"), attempt("d1", None, failure="no model call", turns=())
        ),
        group("e", attempt("e0", 0.0, ()), attempt("e1", 1.0, ())),
    ]
    batch = training_batch(groups, AdvantageRule())
    assert batch.groups == {
        "trained": 1,
        "tied": 1,
        "singleton": 1,
        "unscored": 1,
        "no_tokens": 1,
        "stale": 0,
    }
    assert batch.trajectories == {
        "trained": 2,
        "failed": 2,
        "unscored": 3,
        "tied": 2,
        "singleton": 1,
        "no_tokens": 3,
        "stale": 0,
    }
    assert sum(batch.trajectories.values()) == sum(len(g.trajectories) for g in groups)
    assert (batch.forks, len(batch.rows), batch.trained_tokens) == (1, 3, 5)
    # a0 3, a1 to a3 2 each, b 2 + 2, c 2 + 2, d0 2
    assert batch.sampled_tokens == 19


@pytest.mark.parametrize("missing", ["failure", "unscored"])
def test_x42_x49_who_has_no_score_is_not_in_the_baseline(missing: str) -> None:
    absent = attempt("a2", None, **{missing: "why"})  # type: ignore[arg-type]
    batch = training_batch(
        [group("a", attempt("a0", 1.0), attempt("a1", 0.0), absent)], AdvantageRule(scale="none")
    )
    assert list(batch.advantages) == [0.5, -0.5]


def test_t36_a_turn_split_in_two_changes_no_advantage() -> None:
    """A baseline a turn index would depend on how many turns an attempt chose to take."""
    whole = (turn((1, 2), (3, 4, 5)),)
    split = (turn((1, 2), (3,)), turn((1, 2, 3), (4, 5)))
    rows = []
    for turns in (whole, split):
        members = [attempt("a0", 1.0, turns), attempt("a1", 0.0), attempt("a2", 0.25)]
        batch = training_batch([group("a", *members)], AdvantageRule())
        rows.append((batch.rows[0].ids.tolist(), batch.rows[0].mask.tolist(), list(batch.advantages)))
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("rule", "noise", "spread"),
    [
        # two scores 0.1 apart have a standard deviation of 0.0707
        (AdvantageRule(), None, 0.1 / 2**0.5),
        (AdvantageRule(), 0.01, 0.1 / 2**0.5),
        (AdvantageRule(), 0.5, 0.5),
        (AdvantageRule(noise_floor=0.8), 0.5, 0.8),
        (AdvantageRule(noise_floor=0.8), None, 0.8),
        (AdvantageRule(judge_noise=False), 0.5, 0.1 / 2**0.5),
    ],
)
def test_t31_the_judge_s_own_noise_is_the_group_s_floor(
    rule: AdvantageRule, noise: float | None, spread: float
) -> None:
    near = replace(group("a", attempt("a0", 0.5), attempt("a1", 0.6)), noise=noise)
    batch = training_batch([near], rule)
    assert list(batch.advantages) == pytest.approx([-0.05 / spread, 0.05 / spread])


def test_leave_one_out_is_asked_for_in_the_rule() -> None:
    members = [attempt("a0", 1.0), attempt("a1", 0.0), attempt("a2", 0.0)]
    batch = training_batch([group("a", *members)], AdvantageRule(scale="none", leave_one_out=True))
    assert list(batch.advantages) == pytest.approx([1.0, -0.5, -0.5])


def test_x41_a_tied_group_trains_nothing_not_even_by_a_kl_term() -> None:
    tied = group("a", attempt("a0", 0.5), attempt("a1", 0.5))
    live = group("b", attempt("b0", 1.0), attempt("b1", 0.0))
    batch = training_batch([tied, live], AdvantageRule())
    assert {row.trajectory_id for row in batch.rows} == {"b0", "b1"}


def test_a_failed_attempt_is_not_trained_even_with_a_score() -> None:
    broken = Trajectory(
        trajectory_id="a2",
        scenario_id="s",
        group_id="a",
        messages=(),
        turns=ONE_TURN,
        score=1.0,
        failure="hung",
    )
    batch = training_batch([group("a", attempt("a0", 1.0), attempt("a1", 0.0), broken)], AdvantageRule())
    assert [row.trajectory_id for row in batch.rows] == ["a0", "a1"]


def test_nothing_gives_nothing() -> None:
    batch = training_batch([], AdvantageRule())
    assert (list(batch.rows), sum(batch.groups.values()), batch.sampled_tokens) == ([], 0, 0)
