"""What proves that a served version is the learner's, and what gives it away as another."""

import numpy as np
import pytest

from strop.engines.local.probe import Probe
from strop.engines.local.proof import Answers, proved
from strop.errors import PublishError

NEW = ((3, np.log(0.6)), (4, np.log(0.3)), (5, np.log(0.1)))
OLD = ((3, np.log(0.5)), (4, np.log(0.4)), (5, np.log(0.1)))
BASE = ((5, np.log(0.8)), (3, np.log(0.2)))
MOVED = Probe(prompt=(1,), token=4, separation=0.2)


def learner(**off: float) -> dict[int, float]:
    """What the learner says of the new version's tokens, off by so much at some."""
    return {token: value + off.get(f"t{token}", 0.0) for token, value in NEW}


def test_a_version_near_the_learner_is_proved_and_the_others_are_apart() -> None:
    proof = proved("policy@2", Answers(new=NEW, before=OLD, base=BASE), learner(t3=0.01), MOVED, 0.05)
    # weights 0.6, 0.3, 0.1 of the likely tokens, one of them 0.01 off
    assert proof.gap == pytest.approx(0.006)
    assert proof.separation == pytest.approx(np.log(0.4) - np.log(0.3))
    # Token 4 is not in the base's list: it is at most as likely there as the last that is.
    assert proof.base_separation == pytest.approx(np.log(0.3) - np.log(0.2))


def test_what_nobody_was_asked_is_not_known() -> None:
    proof = proved("policy@0", Answers(new=NEW), learner(), Probe(prompt=(1,)), 0.05)
    assert (proof.gap, proof.separation, proof.base_separation) == (0.0, None, None)


@pytest.mark.parametrize("off", [0.2, float("nan")])
def test_a_version_off_the_learner_is_refused(off: float) -> None:
    with pytest.raises(PublishError, match=r"^policy@2: served log-probs are .* the learner's, bound 0\.05$"):
        proved("policy@2", Answers(new=NEW, before=OLD), learner(t3=off), MOVED, 0.05)


def test_the_reason_is_named_where_another_version_answers() -> None:
    with pytest.raises(PublishError, match="answers exactly as the bare base: the adapter did not arrive"):
        proved("policy@2", Answers(new=BASE, base=BASE), {3: -0.1, 5: -2.0, 4: -3.0}, MOVED, 0.05)
    with pytest.raises(PublishError, match="exactly as the version before it and the bare base"):
        proved("policy@2", Answers(new=NEW, before=NEW, base=NEW), learner(t3=1.0), MOVED, 0.05)


def test_the_same_to_the_last_bit_is_another_version_if_the_learner_is_sure_that_it_moved() -> None:
    """Where the bound is wider than the move, the gap alone could not tell: as in bfloat16."""
    same = Answers(new=NEW, before=NEW, base=BASE)
    with pytest.raises(
        PublishError, match=r"the learner has moved by 0\.2 nats, but the server answers exactly"
    ):
        proved("policy@2", same, learner(), MOVED, 0.35)
    hardly = Probe(prompt=(1,), token=4, separation=0.03)
    assert proved("policy@2", same, learner(), hardly, 0.35).separation == 0.0
    assert proved("policy@2", same, learner(), Probe(prompt=(1,), token=4), 0.35).gap == 0.0
