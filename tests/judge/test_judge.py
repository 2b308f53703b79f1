"""Judging over an async callable: orders, escalation, modes, limits, cache, replay."""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual_time
from strop.errors import JudgeStopped, Unreachable
from strop.judge import Answer, Cost, Failure, Judge, JudgeSettings, Request, Verdict, View, apply
from strop.judge.replay import reread
from strop.trajectory.model import Group, Trajectory

ONE = JudgeSettings(orders=1, max_orders=1)
QUALITY = {"good": 0.9, "bad": 0.1, "fair": 0.5}
PRICED = Cost(tokens_in=100, tokens_out=20, money=0.0004, seconds=0.5, calls=1)
Script = Callable[[Request], str | Answer]


def shown_in(request: Request) -> list[tuple[str, str]]:
    """(place, last word) of every attempt in the prompt, in the order shown."""
    user = request.messages[1]["content"]
    return re.findall(r"<attempt (\d+) \w+>\n(?:.*\n)*?.*?(\S+)\n</attempt", user)


def reply(request: Request, score: Callable[[int, str], float]) -> str:
    key = re.findall(r"scores_\w+", request.messages[1]["content"])[-1]
    items = [
        {"trajectory_id": place, "explanation": word, "score": score(int(place), word)}
        for place, word in shown_in(request)
    ]
    return json.dumps({key: sorted(items, key=lambda item: -float(str(item["score"])))})


def honest(request: Request) -> str:
    """Scores each attempt by its last word and lists the highest first."""
    return reply(request, lambda _, word: QUALITY[word] if word in QUALITY else float(word))


class Asked:
    """An async callable: each call takes the next script, the last one for ever."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        said = self.scripts[min(len(self.requests), len(self.scripts)) - 1](request)
        await asyncio.sleep(0)
        return said if isinstance(said, Answer) else Answer(text=said, finish_reason="stop", cost=PRICED)


def says(text: str, finish_reason: str = "stop") -> Script:
    return lambda _: Answer(text=text, finish_reason=finish_reason, cost=PRICED)


def fails(failure: Failure) -> Script:
    return lambda _: Answer(failure=failure, cost=Cost(calls=1, unmetered=1))


def raises(error: Exception) -> Script:
    def script(_: Request) -> str:
        raise error

    return script


def group(*words: str, name: str = "g") -> Group:
    trajectories = [
        Trajectory(
            trajectory_id=f"t{i}", scenario_id="s", group_id=name, metadata={"i": i},
            messages=({"role": "user", "content": "task"}, {"role": "assistant", "content": word}),
        )
        for i, word in enumerate(words)
    ]  # fmt: skip
    return Group(group_id=name, scenario_id="s", trajectories=trajectories, metadata={"kept": True})


def judging(judge: Judge, groups: Sequence[Group]) -> list[Verdict]:
    async def together() -> list[Verdict]:
        return list(await asyncio.gather(*(judge(one) for one in groups)))

    return virtual_time.run(together())


def one(asked: Asked, judged: Group, rules: JudgeSettings = ONE) -> Verdict:
    return judging(Judge(asked, rules), [judged])[0]


def words_of(request: Request) -> list[str]:
    return [word for _, word in shown_in(request)]


@pytest.mark.parametrize("words", list(itertools.permutations(["good", "bad", "fair"])))
def test_scores_land_on_their_trajectories_in_any_order(words: tuple[str, ...]) -> None:
    verdict = one(Asked(honest), group(*words))
    assert verdict.scores == {f"t{i}": QUALITY[word] for i, word in enumerate(words)}
    assert verdict.explanations == {f"t{i}": word for i, word in enumerate(words)}
    assert verdict.cost == PRICED
    assert (verdict.reliability, verdict.noise, verdict.method) == (None, None, "listwise mean")


def test_x47_the_second_call_shows_the_reverse_and_agreement_is_reliability() -> None:
    asked = Asked(honest)
    verdict = one(asked, group("good", "bad", "fair"), JudgeSettings())
    first, second = map(words_of, asked.requests)
    assert second == first[::-1]
    assert sorted(first) == ["bad", "fair", "good"]
    assert (verdict.reliability, verdict.noise) == (1.0, 0.0)
    assert verdict.scores == {"t0": 0.9, "t1": 0.1, "t2": 0.5}
    assert [r.presentation for r in verdict.replies] == [0, 1]


def test_only_groups_whose_orders_disagree_are_shown_again() -> None:
    def first_wins(request: Request) -> str:
        return reply(request, lambda place, _: 1 - place / 10)

    asked = Asked(first_wins)
    verdict = one(asked, group("good", "bad", "fair", "0.2"), JudgeSettings())
    orders = [words_of(request) for request in asked.requests]
    assert len(orders) == 4
    # Every attempt stood at every place once, so a judge that looks at places alone ties them all.
    assert all(len({order.index(word) for order in orders}) == 4 for word in orders[0])
    assert set((verdict.scores or {}).values()) == {0.75}
    assert verdict.reliability == pytest.approx(1 / 3)
    asked = Asked(honest)
    one(asked, group("good", "bad", "fair", "0.2"), JudgeSettings())
    assert len(asked.requests) == 2


def test_identical_attempts_are_shown_once_and_share_a_score() -> None:
    asked = Asked(honest)
    verdict = one(asked, group("bad", "good", "bad", "good", "bad"))
    assert len(shown_in(asked.requests[0])) == 2
    assert verdict.scores == {"t0": 0.1, "t1": 0.9, "t2": 0.1, "t3": 0.9, "t4": 0.1}


@pytest.mark.parametrize(("words", "flag"), [(["bad"] * 3, "identical"), (["good"], "single")])
def test_nothing_to_compare_takes_no_call(words: list[str], flag: str) -> None:
    asked = Asked(honest)
    verdict = one(asked, group(*words))
    assert not asked.requests
    assert set((verdict.scores or {}).values()) == {0.5}
    assert verdict.flags == (flag,)


def test_what_was_unscored_before_is_not_judged() -> None:
    whole = group("good", "bad", "fair")
    lost = replace(whole.trajectories[1], unscored="agent raised")
    whole = replace(whole, trajectories=(whole.trajectories[0], lost, whole.trajectories[2]))
    verdict = one(Asked(honest), whole)
    assert verdict.scores == {"t0": 0.9, "t2": 0.5}
    judged = apply(whole, verdict)
    assert judged.metadata == {"kept": True}
    assert [(t.score, t.unscored) for t in judged.trajectories] == [
        (0.9, None), (None, "agent raised"), (0.5, None),
    ]  # fmt: skip


def test_x45_a_bad_reply_is_asked_again_with_its_defect_named() -> None:
    def one_missing(request: Request) -> str:
        return re.sub(r", \{[^{}]*\}\]", "]", honest(request))

    asked = Asked(one_missing, honest)
    verdict = one(asked, group("good", "bad", "fair"))
    assert verdict.scores == {"t0": 0.9, "t1": 0.1, "t2": 0.5}
    assert "reasked" in verdict.flags
    assert [r.failure for r in verdict.replies] == [Failure.MISSING_IDS, None]
    assert (verdict.cost.calls, verdict.cost.tokens_in) == (2, 200)
    again = asked.requests[1].messages
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert "these ids are missing" in again[3]["content"]


@pytest.mark.parametrize(
    ("script", "failure", "calls"),
    [
        (says("no idea"), "no_json", 2),
        (says(""), "empty", 2),
        (says("I'm sorry, I can't judge that."), "refusal", 2),
        (says('{"scores_', "length"), "truncated", 2),
        (fails(Failure.REFUSAL), "refusal", 2),
        (fails(Failure.TRANSPORT), "transport", 1),
        (fails(Failure.TIMEOUT), "timeout", 1),
        (fails(Failure.TOO_LONG), "too_long", 1),
        (raises(RuntimeError("boom")), "transport", 1),
    ],
)
def test_a_judge_that_fails_leaves_the_group_unscored(script: Script, failure: str, calls: int) -> None:
    asked, whole = Asked(script), group("good", "bad")
    judge = Judge(asked, ONE)
    [verdict] = judging(judge, [whole])
    assert (verdict.scores, verdict.failure, len(asked.requests)) == (None, failure, calls)
    assert judge.ledger.totals()["outcomes"] == {failure: 1}
    assert (judge.ledger.cost.calls, verdict.cost.calls) == (calls, calls)
    judged = apply(whole, verdict)
    assert [(t.score, t.unscored) for t in judged.trajectories] == [(None, failure)] * 2


def test_one_failed_order_leaves_the_other() -> None:
    verdict = one(Asked(honest, says("no")), group("good", "bad"), JudgeSettings(attempts=1))
    assert verdict.scores == {"t0": 0.9, "t1": 0.1}
    assert "partial" in verdict.flags
    assert verdict.reliability is None
    assert "1 of 2" in verdict.detail


def test_a_cut_reply_gets_twice_the_tokens() -> None:
    asked = Asked(says("{", "length"), honest)
    assert one(asked, group("good", "bad")).scores == {"t0": 0.9, "t1": 0.1}
    assert [request.max_tokens for request in asked.requests] == [1024, 2048]


def test_text_is_an_answer_and_an_endless_call_a_timeout() -> None:
    async def text(request: Request) -> str:
        return honest(request)

    async def endless(_: Request) -> str:
        await asyncio.sleep(3600)
        return ""

    assert judging(Judge(text, ONE), [group("good", "bad")])[0].scores == {"t0": 0.9, "t1": 0.1}
    judge = Judge(endless, replace(ONE, deadline_s=20))
    [verdict] = judging(judge, [group("good", "bad")])
    assert (verdict.failure, judge.ledger.cost.unmetered) == (Failure.TIMEOUT, 1)


def test_an_unreachable_judge_stops_everything() -> None:
    with pytest.raises(Unreachable, match="the key"):
        one(Asked(raises(Unreachable("the key was refused"))), group("good", "bad"), JudgeSettings())


def test_calls_at_once_stay_under_the_limit_in_every_loop() -> None:
    now, most = 0, 0

    async def slow(request: Request) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        return honest(request)

    judge = Judge(slow, replace(ONE, concurrency=3))
    for round_ in range(2):
        verdicts = judging(judge, [group("good", str(i / 100), name=f"{round_}-{i}") for i in range(12)])
        assert all(verdict.scores for verdict in verdicts)
    assert most == 3
    assert judge.ledger.totals()["calls"] == 24


def test_ceilings_stop_before_the_next_call() -> None:
    asked = Asked(honest)
    verdicts = judging(Judge(asked, replace(ONE, max_calls=2)), [group("good", "bad")] * 5)
    assert [v.failure for v in verdicts].count(Failure.OVER_BUDGET) == 3
    assert len(asked.requests) == 2
    cheap = Asked(honest)
    judge = Judge(cheap, replace(ONE, max_money=0.0005, concurrency=1))  # a call costs 0.0004
    judging(judge, [group("good", "bad")] * 5)
    assert len(cheap.requests) == 2
    assert judge.ledger.cost.money == pytest.approx(0.0008)


def test_a_ceiling_of_money_holds_where_the_price_is_unknown() -> None:
    asked = Asked(lambda r: Answer(text=honest(r), cost=Cost(calls=1, money=None)))
    judging(Judge(asked, replace(ONE, max_money=1.0, concurrency=1)), [group("good", "bad")] * 5)
    assert len(asked.requests) == 1


def test_failures_in_a_row_stop_the_judge() -> None:
    asked = Asked(honest, says("x"))
    judge = Judge(asked, replace(ONE, attempts=1, max_failures_in_a_row=2))

    async def all_of_them() -> None:
        for number in range(9):
            await judge(group("good", "bad", name=str(number)))

    with pytest.raises(JudgeStopped, match=r"2 groups in a row \(no_json") as raised:
        virtual_time.run(all_of_them())
    assert "\n" not in str(raised.value)
    assert len(asked.requests) == 3


def test_stopping_begins_no_call_and_loses_none(tmp_path: Path) -> None:
    rules = JudgeSettings(cache=tmp_path, concurrency=1)

    def stops(request: Request) -> str:
        judge.stop()
        return honest(request)

    asked = Asked(stops)
    judge = Judge(asked, rules)
    with pytest.raises(JudgeStopped):
        judging(judge, [group("good", "bad")])
    assert len(asked.requests) == 1
    again = Asked(honest)
    assert one(again, group("good", "bad"), rules).scores == {"t0": 0.9, "t1": 0.1}
    assert len(again.requests) == 1


def test_a_cached_judgement_is_free_and_equal(tmp_path: Path) -> None:
    rules = JudgeSettings(cache=tmp_path)
    first = one(Asked(honest), group("good", "bad", "fair"), rules)
    silent = Asked(fails(Failure.TRANSPORT))
    again = one(silent, group("good", "bad", "fair"), rules)
    assert (again.scores, again.reliability) == (first.scores, first.reliability)
    assert not silent.requests
    assert (again.cost.calls, again.flags) == (0, ("cached",))
    for other in (group("good", "bad", "bad bad"), group("good", "fair")):
        assert one(silent, other, rules).failure == Failure.TRANSPORT


def test_whatever_a_reply_depends_on_is_in_the_key(tmp_path: Path) -> None:
    rules, whole = JudgeSettings(cache=tmp_path), group("good", "bad")
    one(Asked(honest), whole, rules)
    asked = Asked(honest)
    asked.identity = ("another model",)  # type: ignore[attr-defined]
    judging(Judge(asked, rules), [whole])
    judging(Judge(asked, rules, rubric="another"), [whole])
    judging(Judge(asked, replace(rules, max_tokens=99)), [whole])
    judging(Judge(asked, replace(rules, mode="pointwise")), [whole])
    assert len(asked.requests) == 8
    judging(Judge(asked, replace(rules, combine="borda", concurrency=1)), [whole])
    assert len(asked.requests) == 8


def test_a_failure_or_a_broken_file_is_no_cache_hit(tmp_path: Path) -> None:
    rules = replace(ONE, cache=tmp_path)
    one(Asked(says("no")), group("good", "bad"), rules)
    assert not list(tmp_path.rglob("*.json"))
    one(Asked(honest), group("good", "bad"), rules)
    [kept] = tmp_path.rglob("*.json")
    for broken in ("{", "{}", '{"text": 1, "finish_reason": null, "nonce": "x", "alternatives": 3}'):
        kept.write_text(broken)
        asked = Asked(honest)
        assert one(asked, group("good", "bad"), rules).scores == {"t0": 0.9, "t1": 0.1}
        assert len(asked.requests) == 1


def test_pairwise_compares_every_two_in_both_orders() -> None:
    asked = Asked(honest)
    verdict = one(asked, group("good", "bad", "fair"), JudgeSettings(mode="pairwise"))
    pairs = [tuple(words_of(request)) for request in asked.requests]
    assert sorted(pairs) == sorted(itertools.permutations(["good", "bad", "fair"], 2))
    assert verdict.scores == {"t0": 1.0, "t1": 0.0, "t2": 0.5}
    assert verdict.reliability == 1.0


def test_pointwise_shows_each_alone_and_judges_single_ones_too() -> None:
    asked = Asked(honest)
    verdict = one(asked, group("good", "bad", "bad"), JudgeSettings(mode="pointwise"))
    assert [len(shown_in(request)) for request in asked.requests] == [1, 1]
    assert verdict.scores == {"t0": 0.9, "t1": 0.1, "t2": 0.1}
    assert one(Asked(honest), group("fair"), JudgeSettings(mode="pointwise")).scores == {"t0": 0.5}


def test_logprob_gives_the_expected_digit() -> None:
    def digit(_: Request) -> Answer:
        places = ((("8", -0.2876820724517809), ("4", -1.3862943611198906)),)  # 3/4 and 1/4
        return Answer(text="8", finish_reason="stop", alternatives=places, cost=PRICED)

    asked = Asked(digit)
    verdict = one(asked, group("good", "bad"), JudgeSettings(mode="logprob"))
    assert verdict.scores == pytest.approx({"t0": 7 / 9, "t1": 7 / 9})  # (8 * 3/4 + 4 * 1/4) / 9
    assert {request.top_logprobs for request in asked.requests} == {20}
    assert reread(Verdict.from_json(json.loads(json.dumps(verdict.to_json())))).scores == verdict.scores


def test_a_large_group_is_judged_in_overlapping_parts() -> None:
    asked = Asked(honest)
    qualities = [round(0.05 * i, 2) for i in range(1, 20)]
    verdict = one(asked, group(*map(str, qualities)), JudgeSettings(most_at_once=5))
    assert {len(shown_in(request)) for request in asked.requests} == {5}
    scores = verdict.scores or {}
    assert len(scores) == 19
    assert all(0 <= score <= 1 for score in scores.values())
    right = sum(
        (scores[f"t{i}"] > scores[f"t{j}"]) == (qualities[i] > qualities[j])
        for i, j in itertools.combinations(range(19), 2)
    )
    assert right > 0.85 * 171


def test_a_group_that_does_not_fit_is_judged_in_parts() -> None:
    asked = Asked(honest)
    words = [f"{'x ' * 600}0.{i}" for i in range(1, 5)]  # some 400 tokens each
    [verdict] = judging(Judge(asked, ONE, view=View(group_tokens=1700)), [group(*words)])
    assert {len(shown_in(request)) for request in asked.requests} == {3}
    assert len(verdict.scores or {}) == 4


def test_prompts_are_those_that_are_sent() -> None:
    asked = Asked(honest)
    judge = Judge(asked, JudgeSettings())
    whole = group("good", "bad", "fair")
    prompts = judge.prompts(whole)
    judging(judge, [whole])
    assert [list(p.messages) for p in prompts] == [list(r.messages) for r in asked.requests]
    assert judge.prompts(group("good", "good")) == []


biases = st.sampled_from([0.0, 0.07, -0.03])
MODES = [
    JudgeSettings(),
    JudgeSettings(combine="borda"),
    JudgeSettings(combine="kemeny"),
    JudgeSettings(mode="pairwise"),
    JudgeSettings(mode="pointwise"),
    JudgeSettings(most_at_once=3),
]


@settings(max_examples=40)
@given(
    st.sampled_from(MODES),
    st.lists(st.sampled_from(["0.1", "0.2", "0.35", "0.5", "0.8"]), min_size=2, max_size=6),
    biases,
    st.randoms(use_true_random=False),
)
def test_relabelling_and_reordering_permute_scores_and_nothing_else(
    rules: JudgeSettings, words: list[str], bias: float, random: Any
) -> None:
    def biased(request: Request) -> str:
        return reply(request, lambda place, word: min(1.0, max(0.0, float(word) + bias * place)))

    whole = group(*words)
    moved = list(whole.trajectories)
    random.shuffle(moved)
    names = {t.trajectory_id: f"name {i}" for i, t in enumerate(moved)}
    renamed = [replace(t, trajectory_id=names[t.trajectory_id]) for t in moved]
    asked, again = Asked(biased), Asked(biased)
    before = one(asked, whole, rules)
    after = one(again, replace(whole, trajectories=renamed), rules)
    assert after.scores == {names[name]: score for name, score in (before.scores or {}).items()}
    assert [r.messages for r in again.requests] == [r.messages for r in asked.requests]
    assert (after.reliability, after.noise, after.cost) == (before.reliability, before.noise, before.cost)


@pytest.mark.parametrize("rules", MODES)
def test_replaying_gives_the_same_verdict(rules: JudgeSettings) -> None:
    verdict = one(Asked(honest), group("0.3", "good", "bad", "fair", "bad"), rules)
    stored = Verdict.from_json(json.loads(json.dumps(verdict.to_json())))
    assert stored == verdict
    assert reread(stored) == verdict


def test_replay_takes_the_first_reply_that_is_good_today() -> None:
    verdict = one(Asked(says("x"), honest), group("good", "bad"))
    kept = verdict.replies
    again = replace(verdict, replies=(replace(kept[1]), replace(kept[0])))
    assert reread(again).scores == {"t0": 0.9, "t1": 0.1}
    only_bad = replace(verdict, replies=(kept[0],))
    assert reread(only_bad).failure == Failure.NO_JSON
    refused = replace(verdict, replies=(replace(kept[0], failure=Failure.TRANSPORT),))
    assert reread(refused).failure == Failure.TRANSPORT
