"""Prompt tokens a group, theirs and ours, and where the difference comes from.

Every figure is a mean over all groups of a data set, a group without a call counting as 0, and counts
the contents of the messages by one tokenizer. A chat template's own tokens and the JSON schema that
RULER sends beside its messages are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.ruler.groups import marked
from benchmarks.ruler.ours import DEFAULT, ONE_CALL, TWO_CALLS, Run, Tape, Way, judged
from benchmarks.ruler.process import Peer
from strop.judge.ask import Request
from strop.judge.planted import Planted
from strop.judge.repeats import REPEATED_CHARS
from strop.judge.sheet import make_sheet
from strop.trajectory.model import Group, Message, Trajectory

Count = Callable[[str], int]
BYTES_A_TOKEN = 3.0
JUDGES = {
    "steady_judge": Planted(noise=0.05),
    "noisy_judge": Planted(noise=0.15, position_bias=0.2),
}
"""For what our default costs: standard deviation of a score, and what the first place is worth."""


def token_counter(folder: Path | None) -> tuple[Count, str]:
    """Counts by the tokenizer of a model's folder; where there is none, bytes by three. And its name."""
    if folder is not None and (folder / "tokenizer.json").is_file():
        try:
            from tokenizers import Tokenizer
        except ImportError:
            pass
        else:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), folder.name
    return lambda text: round(
        len(text.encode()) / BYTES_A_TOKEN
    ), f"estimate: {BYTES_A_TOKEN:g} bytes a token"


def tokens_of(messages: Sequence[Mapping[str, Any]], count: Count) -> int:
    """Tokens of one prompt's messages."""
    return sum(count(message["content"]) for message in messages)


def our_tokens(groups: Sequence[Group], run: Run, count: Count) -> dict[str, float]:
    """Prompt tokens a group at one call, at two, and at our default, which asks on where orders disagree.

    How often they do depends on the judge, so the mean is given for each of JUDGES. The quality that a
    planted judge reads lengthens every attempt, so its calls are counted, each as long as one without it.
    """
    one, two = (_sent(groups, way, Planted(), run) for way in (ONE_CALL, TWO_CALLS))
    tokens = sum(tokens_of(request.messages, count) for request in one) / len(groups)
    found = {
        "groups_called": len(one),
        "instruction_and_rubric": tokens_of(one[0].messages[:1], count),
        "one_call": round(tokens, 1),
        "two_calls": round(sum(tokens_of(request.messages, count) for request in two) / len(groups), 1),
    }
    material = [marked(group) for group in groups]
    for name, judge in JUDGES.items():
        calls = len(_sent(material, DEFAULT, judge, run)) / len(one)
        found |= {f"default_{name}": round(tokens * calls, 1), f"default_{name}_calls": round(calls, 3)}
    return found


def _sent(groups: Sequence[Group], way: Way, judge: Planted, run: Run) -> Sequence[Request]:
    tape = Tape(judge)
    run(judged(tape, groups, way, len(groups)))
    return tape.requests


def distinct(group: Group) -> Group:
    """The group with one attempt of every set that reads the same to our judge."""
    kept = {entry.ids[0] for entry in make_sheet(group.trajectories).entries}
    return replace(group, trajectories=tuple(t for t in group.trajectories if t.trajectory_id in kept))


def savings(
    groups: Sequence[Group], ours: Mapping[str, float], theirs: float, peer: Peer, count: Count
) -> dict[str, float]:
    """Tokens a group that each of our rules takes off RULER's prompt, in this order; they add up.

    All but the last two show the peer what is left after them, so that its own prompts are counted.
    """
    called = [group for group in map(distinct, groups) if len(group.trajectories) > 1]
    names = {group.group_id for group in called}
    same_ids = [_same_call_ids(group) for group in called]
    steps = {
        "no call where all attempts are alike": [g for g in groups if g.group_id in names],
        "duplicates shown once": called,
        "call ids do not defeat the common prefix": same_ids,
        "long results that came back, once": [_named_repeats(group) for group in same_ids],
    }
    left, saved = theirs, {}
    for name, material in steps.items():
        now = shown_tokens(material, peer, count) / len(groups)
        saved[name], left = round(left - now, 1), now
    first = peer.score(called[:1], "show")["prompts"][0][:1]
    instruction = (tokens_of(first, count) - ours["instruction_and_rubric"]) * len(called) / len(groups)
    saved["shorter instruction and rubric"] = round(instruction, 1)
    saved["plain text for JSON, fewer fields"] = round(left - instruction - ours["one_call"], 1)
    return saved


def shown_tokens(groups: Sequence[Group], peer: Peer, count: Count) -> int:
    """Tokens of all prompts that the peer makes of these groups."""
    return sum(tokens_of(messages, count) for messages in peer.score(groups, "show")["prompts"])


def _named_repeats(group: Group) -> Group:
    """Every long tool result that came before in the group replaced by a name as short as ours."""
    seen: set[str] = set()

    def named(message: Message) -> Message:
        content = message.get("content")
        if message["role"] != "tool" or not isinstance(content, str) or len(content) < REPEATED_CHARS:
            return message
        again = content in seen
        seen.add(content)
        return {**message, "content": "<R1>"} if again else message

    return replace(
        group,
        trajectories=tuple(replace(t, messages=tuple(map(named, t.messages))) for t in group.trajectories),
    )


def _same_call_ids(group: Group) -> Group:
    """Every attempt with the call ids that the first one has at the same place: as long, but equal."""
    first = [_ids(message) for message in group.trajectories[0].messages]
    return replace(group, trajectories=tuple(_renamed(t, first) for t in group.trajectories))


def _ids(message: Message) -> list[str]:
    calls = [call["id"] for call in message.get("tool_calls") or ()]
    return [*calls, *([message["tool_call_id"]] if "tool_call_id" in message else [])]


def _renamed(trajectory: Trajectory, first: Sequence[Sequence[str]]) -> Trajectory:
    names: dict[str, str] = {}
    for message, given in zip(trajectory.messages, first, strict=False):
        names.update((own, new) for own, new in zip(_ids(message), given, strict=False) if own not in names)
    return replace(trajectory, messages=tuple(_with_ids(message, names) for message in trajectory.messages))


def _with_ids(message: Message, names: Mapping[str, str]) -> Message:
    changed = dict(message)
    if message.get("tool_calls"):
        changed["tool_calls"] = [
            {**call, "id": names.get(call["id"], call["id"])} for call in message["tool_calls"]
        ]
    if "tool_call_id" in message:
        changed["tool_call_id"] = names.get(message["tool_call_id"], message["tool_call_id"])
    return changed
