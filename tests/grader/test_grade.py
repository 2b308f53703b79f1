import json
from dataclasses import replace

import numpy as np
import pytest

from strop.engine import Scored
from strop.errors import InputError
from strop.grader.codec import dumps, loads, to_json
from strop.grader.grade import grade


def test_grades_by_hand(table_engine, make_two_steps):
    engine = table_engine()
    [graded] = grade([make_two_steps(truth=1.0, first_wrong_step=None)], engine)
    first, second = graded.steps
    assert first.grade == pytest.approx(0.7)
    assert first.mean == pytest.approx(0.35)
    assert (first.policy_logprob, first.reference_logprob) == pytest.approx((-0.7, -1.4))
    assert second.grade == pytest.approx(0.6)
    assert (first.n_tokens, second.n_tokens, second.message_index) == (2, 1, 3)
    assert (first.entropy, first.self_certainty, first.deepconf) == (0.5, 2.0, 7.0)
    assert graded.sum == pytest.approx(1.3)
    assert graded.mean == pytest.approx(0.65)
    assert graded.lowest is second
    assert engine.calls == [("policy", 1), ("reference", 1)]


def test_beta_scales_grades_alone(table_engine, make_two_steps):
    [graded] = grade([make_two_steps()], table_engine(), beta=0.5)
    assert graded.steps[0].grade == pytest.approx(0.35)
    assert graded.steps[0].policy_logprob == pytest.approx(-0.7)


def test_the_same_model_twice_grades_exactly_zero(table_engine, make_two_steps):
    engine = table_engine({"policy": -0.3, "reference": -0.3})
    [graded] = grade([make_two_steps()], engine)
    assert [step.grade for step in graded.steps] == [0.0, 0.0]
    assert graded.sum == 0.0


def test_spans_add_up_to_the_grade(table_engine, make_two_steps):
    text = {3: "Hello ", 4: '<tool_call>{"name": "x"}</tool_call>', 6: ""}
    [graded] = grade([make_two_steps()], table_engine(), decode=lambda ids: "".join(text[i] for i in ids))
    assert graded.steps[0].spans == pytest.approx({"prose": 0.3, "template": 0.4})
    assert graded.steps[1].spans == pytest.approx({"template": 0.6})


def test_a_trajectory_without_turns_has_a_reason_and_no_number(table_engine, make_two_steps):
    [graded] = grade([make_two_steps(turns=())], table_engine())
    assert graded.ungraded is not None
    assert "no turns" in graded.ungraded
    assert (graded.steps, graded.sum, graded.mean, graded.lowest) == ((), None, None, None)


def test_what_one_trajectory_breaks_the_others_do_not_feel(table_engine, make_turn, make_two_steps):
    long = make_two_steps("long", turns=(make_turn([1] * 50, [3], 1), make_turn([2], [3], 3)))
    bad = make_two_steps("bad", turns=(replace(make_turn([1], [2], 1), logprobs=(float("nan"),)),))
    many = [make_two_steps("a"), long, bad, make_two_steps("b")]
    graded = list(grade(many, table_engine(longest=20)))
    assert [g.trajectory_id for g in graded] == ["a", "long", "bad", "b"]
    assert [g.ungraded is None for g in graded] == [True, False, False, True]
    assert "context" in graded[1].ungraded
    assert "finite" in graded[2].ungraded


def test_batches_change_nothing(table_engine, make_two_steps):
    many = [make_two_steps(str(i)) for i in range(5)]
    assert list(grade(many, table_engine(), batch=2)) == list(grade(many, table_engine(), batch=64))


def test_an_engine_that_scores_a_part_or_gives_nan(table_engine, make_two_steps):
    class Part(table_engine):
        def _scored(self, ids, adapter):
            whole = super()._scored(ids, adapter)
            return replace(whole, logprobs=whole.logprobs[:-1])

    class Nan(table_engine):
        def _scored(self, ids, adapter):
            return replace(super()._scored(ids, adapter), entropy=np.full(len(ids), np.nan))

    assert "only a part" in next(grade([make_two_steps()], Part())).ungraded
    assert "not finite" in next(grade([make_two_steps()], Nan())).ungraded


def test_a_line_holds_everything(table_engine, make_two_steps):
    graded = list(grade([make_two_steps(truth=0.0, first_wrong_step=1)], table_engine()))
    graded += list(grade([make_two_steps(turns=())], table_engine()))
    assert [loads(dumps(g)) for g in graded] == graded
    line = to_json(graded[0])
    assert (line["schema"], line["argmin_step"]) == (1, 1)
    assert line["min_step"] == pytest.approx(0.6)
    assert json.loads(dumps(graded[1]))["sum"] is None


@pytest.mark.parametrize("line", ["{", "[]", '{"schema": 99}', '{"schema": 1}'])
def test_a_bad_line_says_so(line):
    with pytest.raises(InputError, match="grades"):
        loads(line)


def test_what_the_engine_does_not_say_is_unknown_in_the_grades(table_engine, make_two_steps):
    class Blind(table_engine):
        def _scored(self, ids, adapter):
            return Scored(logprobs=super()._scored(ids, adapter).logprobs)

    [graded] = grade([make_two_steps()], Blind())
    assert [(s.entropy, s.self_certainty, s.deepconf) for s in graded.steps] == [(None, None, None)] * 2
    assert graded.sum == pytest.approx(1.3)
    line = json.loads(dumps(graded))
    assert line["steps"][0]["deepconf"] is None
    assert loads(json.dumps(line)) == graded
