"""Windows over long rows, and their readings put together, on rows small enough to write down."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.engine import Against, Contrasted, Scored
from strop.errors import InputError
from strop.grader.sliding import NEVER, Window, joined, shown, unseen, windows
from strop.trajectory.tokens import Row


def row(mask):
    chosen = np.array(mask, dtype=bool)
    return Row(
        trajectory_id="t",
        ids=np.arange(len(chosen)),
        mask=chosen,
        logprobs=np.zeros(len(chosen)),
        turn_of=np.where(chosen, 0, -1),
    )


def read(part):
    """A reader that says of every sampled token its own id, negated."""
    said = -part.ids[part.mask].astype(float)
    zeros = np.zeros(len(said))
    policy = Scored(logprobs=said, entropy=zeros, self_certainty=zeros, topk_logprob=zeros)
    return Contrasted(policy=policy, references=(Against(logprobs=said - 1, kl=zeros),))


def test_windows_by_hand():
    assert windows(row([0] + [1] * 9), 10, "slide") == [Window(start=0, first=0, stop=10)]
    assert windows(row([0] + [1] * 9), 4, "slide") == [
        Window(start=0, first=0, stop=4),
        Window(start=2, first=4, stop=6),
        Window(start=4, first=6, stop=8),
        Window(start=6, first=8, stop=10),
    ]
    assert windows(row([0] + [1] * 9), 4, "last") == [Window(start=6, first=7, stop=10)]


def test_a_window_without_a_sampled_token_is_not_read():
    assert windows(row([0, 1, 0, 0, 0, 0, 0, 1]), 4, "slide") == [
        Window(start=0, first=0, stop=4),
        Window(start=4, first=6, stop=8),
    ]


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(2, 12))
def test_sliding_scores_every_sampled_token_once_within_the_length(mask, length):
    whole = row([False, *mask])
    cuts = windows(whole, length, "slide")
    parts = [shown(whole, cut) for cut in cuts]
    assert all(len(part.ids) <= length for part in parts)
    together = joined(whole, cuts, [read(part) for part in parts], 1)
    np.testing.assert_array_equal(together.policy.logprobs, -np.flatnonzero(whole.mask))
    np.testing.assert_array_equal(together.references[0].kl, np.zeros(whole.mask.sum()))
    starts = {at: cut.start for cut in cuts for at in range(cut.first, cut.stop)}
    assert unseen(whole, cuts).tolist() == [starts[at] for at in np.flatnonzero(whole.mask)]


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(2, 12))
def test_the_last_tokens_only_leave_the_others_unscored(mask, length):
    whole = row([False, *mask])
    cuts = windows(whole, length, "last")
    together = joined(whole, cuts, [read(shown(whole, cut)) for cut in cuts], 1)
    where = np.flatnonzero(whole.mask)
    lost = len(whole.ids) - length
    scored = where > lost if lost > 0 else where >= 0
    np.testing.assert_array_equal(np.isnan(together.policy.logprobs), ~scored)
    np.testing.assert_array_equal(unseen(whole, cuts) == NEVER, ~scored)


def test_a_reader_that_leaves_tokens_out_is_refused():
    whole = row([0, 1, 1])
    cuts = windows(whole, 8, "slide")
    with pytest.raises(InputError, match="only a part"):
        joined(whole, cuts, [read(row([0, 1, 0]))], 1)


def test_what_a_reader_does_not_know_stays_unknown():
    whole = row([0, 1, 1, 1, 1, 1])
    cuts = windows(whole, 4, "slide")

    def blind(part):
        said = read(part).policy.logprobs
        return Contrasted(policy=Scored(logprobs=said), references=(Against(logprobs=said - 1),))

    together = joined(whole, cuts, [blind(shown(whole, cut)) for cut in cuts], 1)
    np.testing.assert_array_equal(together.policy.logprobs, [-1, -2, -3, -4, -5])
    policy = together.policy
    assert policy.entropy is policy.self_certainty is policy.topk_logprob is together.references[0].kl is None
