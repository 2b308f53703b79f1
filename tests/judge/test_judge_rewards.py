"""The judge as a reward function: groups by position, and what an unscored completion gets."""

import asyncio

import pytest

from strop.errors import InputError, JudgeStopped
from strop.judge.ask import Answer, Request
from strop.judge.judge import Judge
from strop.judge.planted import Planted
from strop.judge.rewards import Said, groups_of, rewards, scores
from strop.judge.settings import JudgeSettings
from strop.judge.verdict import Failure, Verdict
from strop.trajectory.model import Group

CHAT_PROMPT: list[dict[str, str]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]


class Verdicts:
    """A judge that scores by the last message's number; "?" is unscored, "!" fails the whole group."""

    def __init__(self) -> None:
        self.seen: list[Group] = []

    async def __call__(self, group: Group) -> Verdict:
        self.seen.append(group)
        await asyncio.sleep(0)
        said = {t.trajectory_id: str(t.messages[-1]["content"]) for t in group.trajectories}
        if "!" in said.values():
            return Verdict(group_id=group.group_id, failure=Failure.NO_JSON)
        return Verdict(
            group_id=group.group_id,
            scores={name: float(text) for name, text in said.items() if text != "?"},
        )


def run(prompts: list[Said], completions: list[Said], size: int) -> list[float]:
    return asyncio.run(rewards(Verdicts(), prompts, completions, size))


def test_numbers_come_back_in_the_order_of_the_completions() -> None:
    assert run(["a", "a", "b", "b"], ["0.9", "0.1", "0.3", "0.4"], 2) == [0.9, 0.1, 0.3, 0.4]


def test_an_unscored_completion_lies_at_the_baseline() -> None:
    assert run(["a"] * 4, ["0.5", "?", "1", "0"], 4) == [0.5, 0.5, 1.0, 0.0]
    found = run(["a"] * 3, ["0.25", "?", "1"], 3)
    assert found[1] == (0.25 + 1) / 2 == sum(found) / 3


def test_a_wholly_unscored_group_is_exactly_tied() -> None:
    for texts in (["!", "0.2", "0.7"], ["?", "?", "?"]):
        found = run(["a"] * 3, [*texts], 3)
        assert len({*found}) == 1
        mean = sum(found) / 3
        assert [number - mean for number in found] == [0.0, 0.0, 0.0]


def test_scores_keep_the_third_state() -> None:
    found = asyncio.run(scores(Verdicts(), ["a", "a", "b", "b"], ["0.5", "?", "!", "0.1"], 2))
    assert found == [0.5, None, None, None]


def test_plain_text_and_chat_messages_are_the_same_group() -> None:
    (plain,) = groups_of(["q", "q"], ["x", "y"], 2)
    answers = [[{"role": "assistant", "content": text}] for text in "xy"]
    (chat,) = groups_of([[{"role": "user", "content": "q"}]] * 2, answers, 2)
    assert plain == chat
    assert plain.trajectories[1].messages == (
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "y"},
    )


def test_a_completion_of_several_messages_is_kept_whole() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
    tool = {"role": "tool", "tool_call_id": "1", "content": "7"}
    last = {"role": "assistant", "content": "seven"}
    (group,) = groups_of([CHAT_PROMPT], [[call, tool, last]], 1)
    assert group.trajectories[0].messages == (*CHAT_PROMPT, call, tool, last)


def test_trajectories_and_groups_have_ids_of_their_own() -> None:
    groups = groups_of(["a", "a", "a", "a"], ["w", "x", "y", "z"], 2)
    names = [t.trajectory_id for group in groups for t in group.trajectories]
    assert len(set(names)) == 4
    assert len({group.group_id for group in groups}) == 2


@pytest.mark.parametrize(
    ("prompts", "completions", "size", "said"),
    [
        (["a", "b"], ["x", "y"], 2, "group-0: completion 1 answers another prompt"),
        (["a", "a", "b", "b", "b", "c"], ["x"] * 6, 2, "group-2: completion 1 answers another prompt"),
        (["a"] * 3, ["x"] * 3, 2, "3 completions do not make groups of 2"),
        (["a"], ["x", "y"], 2, "1 prompts but 2 completions"),
        (["a"], ["x"], 0, "group_size is 0"),
    ],
)
def test_groups_that_are_none_are_refused(
    prompts: list[Said], completions: list[Said], size: int, said: str
) -> None:
    with pytest.raises(InputError, match=said) as raised:
        groups_of(prompts, completions, size)
    assert "\n" not in str(raised.value)


def test_nothing_gives_nothing() -> None:
    assert run([], [], 4) == []


def qualities(*values: float) -> list[Said]:
    return [[{"role": "assistant", "content": f"quality={value}"}] for value in values]


def test_a_real_judge_over_several_event_loops() -> None:
    judge = Judge(Planted(), JudgeSettings(concurrency=1))
    answers = qualities(0.1, 0.9, 0.4, 0.6, 0.2, 0.3)
    for _ in range(2):
        found = asyncio.run(rewards(judge, [CHAT_PROMPT] * 6, answers, 3))
        assert found == pytest.approx([0.1, 0.9, 0.4, 0.6, 0.2, 0.3])
    assert judge.ledger.outcomes == {"ok": 4}


def test_failures_are_in_the_ledger_and_not_in_the_rewards() -> None:
    async def mute(request: Request) -> Answer:
        return Answer(text="I would rather not say", finish_reason="stop")

    judge = Judge(mute)
    assert asyncio.run(rewards(judge, ["q"] * 2, ["quality=0.1", "quality=0.9"], 2)) == [0.5, 0.5]
    assert judge.ledger.outcomes.total() == 1
    assert "ok" not in judge.ledger.outcomes


def test_a_dead_judge_stops_the_trainer() -> None:
    async def dead(request: Request) -> Answer:
        return Answer(failure=Failure.TRANSPORT, detail="connection refused")

    judge = Judge(dead, JudgeSettings(max_failures_in_a_row=2))
    with pytest.raises(JudgeStopped):
        asyncio.run(rewards(judge, ["q"] * 4, ["quality=0.1", "quality=0.9"] * 2, 2))
