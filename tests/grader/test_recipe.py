"""Scores of steps and trajectories against hand arithmetic, for two references at once."""

import numpy as np
import pytest

from strop.engine import Against, Contrasted, Scored
from strop.errors import InputError
from strop.grader.codec import dumps, loads, to_json
from strop.grader.grade import GradeSettings, grade_prepared
from strop.grader.prepare import from_turns
from strop.grader.ratio import AGGREGATORS, aggregate
from strop.grader.recipe import Recipe, step_score, trajectory_score
from strop.grader.step_readings import SpanReading, aggregates

POLICY = {3: -1.0, 4: -4.0, 6: -2.0}
FIRST = {3: -2.0, 4: -3.0, 6: -2.5}
KL = {3: 0.25, 4: 0.5, 6: 0.125}
TEXT = {3: "Hello ", 4: '<tool_call>{"name": "x"}</tool_call>', 6: "Bye"}


class Ladder:
    """Two references: one of FIRST, and the policy itself."""

    references = ("first", "self")

    def read(self, rows):
        return [self._one(row.ids[row.mask].tolist()) for row in rows]

    def _one(self, ids):
        of = lambda table: np.array([table[i] for i in ids])  # noqa: E731
        zeros = np.zeros(len(ids))
        policy = Scored(logprobs=of(POLICY), entropy=zeros, self_certainty=zeros, topk_logprob=zeros)
        first = Against(logprobs=of(FIRST), kl=of(KL))
        return Contrasted(policy=policy, references=(first, Against(logprobs=of(POLICY), kl=zeros)))


@pytest.fixture
def graded(make_two_steps):
    settings = GradeSettings(beta=0.5, decode=lambda ids: "".join(TEXT[i] for i in ids), tokens=True)
    (one,) = grade_prepared([from_turns(make_two_steps())], Ladder(), settings)
    return one


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        (Recipe(), 0.0),  # (-1 + 2) + (-4 + 3)
        (Recipe(token="mean"), 0.0),
        (Recipe(token="min"), -1.0),
        (Recipe(token="max"), 1.0),
        (Recipe(token="last"), -1.0),
        (Recipe(token="bottom10"), -1.0),
        (Recipe(token="min", reading="difference-of-aggregates"), -1.0),  # -4 + 3
        (Recipe(token="max", reading="difference-of-aggregates"), 1.0),  # -1 + 2
        (Recipe(centred=True), -0.75),
        (Recipe(centred=True, token="max"), 0.75),
        (Recipe(span="prose"), 1.0),
        (Recipe(span="template"), -1.0),
        (Recipe(span="reasoning"), None),
        (Recipe(reference="self", token="min"), 0.0),
    ],
)
def test_the_first_step_by_hand(graded, recipe, wanted):
    assert step_score(graded.steps[0], recipe) == wanted


def test_the_trajectory_by_hand(graded):
    """Steps 0 and 0.5, β = 1/2; prose is 1 in the first and 0.5 in the second."""
    assert graded.sum == pytest.approx(0.25)
    assert trajectory_score(graded, Recipe()) == pytest.approx(0.25)
    assert trajectory_score(graded, Recipe(step="max")) == pytest.approx(0.25)
    assert trajectory_score(graded, Recipe(step="min", token="min")) == pytest.approx(-0.5)
    assert trajectory_score(graded, Recipe(span="prose", step="mean")) == pytest.approx(0.375)
    assert trajectory_score(graded, Recipe(span="template")) == pytest.approx(-0.5)
    assert trajectory_score(graded, Recipe(span="tool_arguments")) is None


def test_the_lowest_of_each_model_may_be_of_different_tokens():
    """Policy -1 and -3, reference -5 and -2: token ratios 4 and -1, lowest of each -3 and -5."""
    whole = SpanReading(
        n_tokens=2,
        policy=aggregates(np.array([-1.0, -3.0])),
        reference=aggregates(np.array([-5.0, -2.0])),
        ratio=aggregates(np.array([4.0, -1.0])),
        centred=None,
    )
    assert (whole.ratio.min, whole.difference("min")) == (-1.0, 2.0)
    assert whole.ratio.sum == whole.difference("sum") == 3.0


def test_all_aggregates_at_once_are_those_one_at_a_time():
    values = np.random.default_rng(1).normal(size=27)
    found = aggregates(values)
    assert [found.by(how) for how in AGGREGATORS] == pytest.approx(
        [aggregate(values, h) for h in AGGREGATORS]
    )


def test_a_reference_that_is_the_policy_gives_exactly_0(graded):
    line = to_json(graded)
    for reading in line["trajectory"]["self"].values():
        assert all(value == 0 for row in reading.values() for value in row.values())
    assert line["step_scores"] == {"grade over self": [0.0, 0.0]}


def test_the_line_holds_all_and_comes_back(graded):
    assert loads(dumps(graded)) == graded
    tokens = graded.steps[0].tokens
    assert (tokens["id"], tokens["kind"]) == ([3, 4], ["prose", "template"])
    assert tokens["reference_logprob"] == {"first": [-2.0, -3.0], "self": [-1.0, -4.0]}
    assert tokens["kl"]["first"] == [0.25, 0.5]


def test_what_no_step_holds_is_refused(graded, table_engine, make_two_steps):
    with pytest.raises(InputError, match="no readings against elsewhere"):
        step_score(graded.steps[0], Recipe(reference="elsewhere"))
    with pytest.raises(InputError, match="centred"):
        step_score(graded.steps[0], Recipe(reading="difference-of-aggregates", centred=True))
