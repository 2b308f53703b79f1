"""The probe: where it asks, and what it compares."""

import json

import numpy as np
import pytest

from strop.engines.local.probe import (
    MOST,
    ROOM,
    Place,
    as_read,
    behind,
    candidates,
    from_json,
    gap,
    likely,
    probe_at,
    sharpest,
    to_json,
)
from strop.trajectory.tokens import Row


def row(ids: list[int], mask: list[int], logprobs: list[float], temperature: float = 1.0) -> Row:
    return Row(
        trajectory_id="t",
        ids=np.array(ids, dtype=np.int64),
        mask=np.array(mask, dtype=np.bool_),
        logprobs=np.array(logprobs),
        turn_of=np.where(np.array(mask), 0, -1),
        temperature=temperature,
    )


def places(rows: list[Row]) -> list[tuple[list[int], list[int], list[float]]]:
    """Ids, places and the log-probs there of each candidate row."""
    return [(r.ids.tolist(), np.flatnonzero(r.mask).tolist(), r.logprobs[r.mask].tolist()) for r in rows]


def test_it_asks_before_the_token_that_moved_most() -> None:
    rows = [
        row([5, 6, 7, 8], [0, 1, 1, 0], [0, -0.1, -0.7, 0]),
        row([5, 9, 3], [0, 0, 1], [0, 0, -0.2], temperature=0.5),
    ]
    place = sharpest(rows, [np.array([-0.1, -0.3]), np.array([-1.2])])
    assert place == (1, 0, pytest.approx(1.0))
    found = probe_at(rows, place, fresh=True)
    assert (found.prompt, found.token, found.temperature) == ((5, 9), 3, 0.5)
    assert found.separation == pytest.approx(1.0)
    nothing_new = probe_at(rows, place, fresh=False)
    assert (nothing_new.prompt, nothing_new.token, nothing_new.separation) == ((5, 9), None, None)


def test_where_nothing_moved_it_asks_at_the_first_place_and_knows_no_distance() -> None:
    still = [row([5, 6, 7], [0, 1, 1], [0, -0.3, -0.4])]
    place = sharpest(still, [np.array([-0.3, -0.4])])
    assert place == Place(0, 0, 0.0)
    found = probe_at(still, place, fresh=True)
    assert (found.prompt, found.token, found.separation) == ((5,), None, None)


def test_the_end_of_a_prompt_is_a_place_of_which_nothing_is_known() -> None:
    rows = [behind([4, 5, 6])]
    found = probe_at(rows, sharpest(rows, [np.array([-9.0])]), fresh=False)
    assert (found.prompt, found.token, found.separation) == ((4, 5, 6), None, None)


def test_tokens_too_unlikely_to_compare_are_no_candidates() -> None:
    # log 0.05 is -2.996
    found = candidates([row([5, 6, 7], [0, 1, 1], [0, 0, 0])], [1.0], [np.array([-3.1, -2.9])], 9)
    assert places(found) == [([5, 6, 7], [2], [-2.9])]


def test_certain_tokens_and_rows_without_advantage_are_no_candidates() -> None:
    rows = [row([5, 6, 7], [0, 1, 1], [0, 0, 0]), row([5, 6, 9], [0, 1, 1], [0, 0, 0])]
    before = [np.array([-0.5, -0.5]), np.array([0.0, -0.5])]
    assert places(candidates(rows, [0.0, -2.0], before, 9)) == [([5, 6, 9], [2], [-0.5])]
    assert candidates(rows, [0.0, 0.0], before, 9) == []
    assert candidates([], [], [], 9) == []
    assert candidates([row([5, 6], [0, 0], [0, 0])], [1.0], [np.zeros(0)], 9) == []


def test_the_most_promising_places_come_first_and_their_prompts_fit_the_room() -> None:
    """Two rows that share 10 tokens and then go on alone, each with one open token near and one far off."""
    near, far = 12, 12 + ROOM - 5
    ids = [list(range(10)) + [100 * (k + 1) + n for n in range(far + 10)] for k in range(2)]
    mask = [int(at in (near, far)) for at in range(len(ids[0]))]
    rows = [row(own, mask, [0.0] * len(own)) for own in ids]
    # advantage x (1 - p): row 0 has 0.5 and 0.9, row 1 has 0.4 and 0.2
    before = [np.log([0.5, 0.1]), np.log([0.8, 0.9])]
    found = candidates(rows, [1.0, -2.0], before, 999)
    # Row 0 to its far token is 12 + ROOM - 5 tokens; row 1 has the first 10 of those, so its near token
    # costs 2 more and its far one would cost ROOM - 3 more, and there is room for 5 more.
    assert [np.flatnonzero(one.mask).tolist() for one in found] == [[near, far], [near]]
    assert [len(one.ids) for one in found] == [far + 1, near + 1]
    np.testing.assert_allclose(found[0].logprobs[found[0].mask], before[0])
    np.testing.assert_allclose(found[1].logprobs[found[1].mask], before[1][:1])


def test_a_place_deeper_than_the_room_is_passed_over() -> None:
    size = ROOM + 30
    deep = row([1] * size, [0] * 5 + [1] + [0] * (size - 7) + [1], [0.0] * size, temperature=0.7)
    found = candidates([deep], [1.0], [np.log([0.9, 0.1])], 999)
    assert [(len(one.ids), np.flatnonzero(one.mask).tolist()) for one in found] == [(6, [5])]
    assert found[0].temperature == 0.7


def test_a_prompt_must_leave_room_for_a_token() -> None:
    ids = row([5, 6, 7, 8], [0, 0, 1, 1], [0.0] * 4)
    before = [np.log([0.9, 0.5])]
    assert places(candidates([ids], [1.0], before, 4))[0][1] == [2, 3]
    assert places(candidates([ids], [1.0], before, 3))[0][1] == [2]
    assert candidates([ids], [1.0], before, 2) == []


def test_there_are_never_more_than_so_many() -> None:
    size = MOST + 20
    found = candidates(
        [row([1] * size, [0] + [1] * (size - 1), [0.0] * size)], [1.0], [np.full(size - 1, -1.0)], 999
    )
    assert sum(int(one.mask.sum()) for one in found) == MOST


def test_candidates_are_kept_in_json_to_the_last_bit() -> None:
    rows = [row([5, 6, 7, 8], [0, 1, 0, 1], [0, -0.1, 0, -1 / 3], temperature=0.3)]
    (again,) = from_json(json.loads(json.dumps(to_json(rows))))
    for name in ("ids", "mask", "logprobs", "turn_of"):
        np.testing.assert_array_equal(getattr(again, name), getattr(rows[0], name))
    assert again.temperature == 0.3


def test_what_is_read_again_stands_at_the_places_and_nothing_else_changes() -> None:
    first = row([5, 6, 7, 8], [0, 1, 0, 1], [0, -0.1, 0, -0.2], temperature=0.3)
    (again,) = as_read([first], [np.array([-0.4, -0.5])])
    assert again.logprobs.tolist() == [0, -0.4, 0, -0.5]
    assert (again.ids.tolist(), again.mask.tolist(), again.temperature) == ([5, 6, 7, 8], [0, 1, 0, 1], 0.3)


def test_only_likely_tokens_are_compared_and_the_first_always_is() -> None:
    assert likely([(3, -0.5), (4, -1.0), (5, -3.0)]) == {3: -0.5, 4: -1.0}
    assert likely([(3, -5.0), (4, -6.0)]) == {3: -5.0}


def test_the_gap_is_the_mean_difference_weighted_by_probability() -> None:
    # e^-0.5 = 0.60653 and e^-1 = 0.36788: (0.60653 * 0.1 + 0.36788 * 0.3) / 0.97441 = 0.17551
    assert gap({3: -0.5, 4: -1.0}, {3: -0.4, 4: -1.3, 9: -7.0}) == pytest.approx(0.17551, abs=1e-5)
