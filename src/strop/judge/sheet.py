"""A group written out once, for all the prompts that show it or a part of it."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from strop.errors import InputError
from strop.judge.budget import fit, size
from strop.judge.repeats import definition, name_repeats, with_names
from strop.judge.transcript import Clean, Line, harmless, lines_of
from strop.judge.view import FRAME_BYTES, View
from strop.trajectory.model import Message, Trajectory

IMAGE_TOKENS = 1000
"""What an image is taken to cost; endpoints differ."""

NOTHING = "(no further message)"

_BLOCK_BYTES = 60
_OPENING_ROLES = ("system", "developer", "user")
_DEFAULT = View()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One attempt as the judge reads it: ids of the trajectories that read so, the text beyond the context.

    `images` belong, in order, where `transcript.IMAGE` stands in `body`.
    """

    ids: tuple[str, ...]
    body: str
    images: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A group's attempts, in an order that follows from their texts alone.

    `prefix` is what all begin with, and `results` are long results that occur more than once, by the name
    that stands for them; `cut` is the share of a trajectory's characters, those of the prefix included,
    that is not shown, where above 0; `digest` a hash of all that is shown, without ids, and `folded` all of
    it in lower case.
    """

    prefix: str
    results: Mapping[str, str] = field(default_factory=dict)
    context_images: tuple[Mapping[str, Any], ...] = ()
    entries: tuple[Entry, ...]
    cut: Mapping[str, float] = field(default_factory=dict)
    digest: str
    folded: str
    bytes_per_token: float = _DEFAULT.bytes_per_token

    @property
    def context(self) -> str:
        """All that attempts share, "" where nothing."""
        return "\n".join([self.prefix] * bool(self.prefix) + [*self.results.values()])

    def context_of(self, places: Sequence[int]) -> str:
        """The context for a prompt that shows the entries at `places`."""
        bodies = [self.entries[place].body for place in places]
        used = [line for name, line in self.results.items() if any(name in body for body in bodies)]
        return "\n".join([self.prefix] * bool(self.prefix) + used)

    def tokens(self, places: Sequence[int]) -> int:
        """About how many tokens a prompt takes that shows the entries at `places`, the rubric not counted."""
        shown = [self.entries[place] for place in places]
        texts = size(self.context_of(places)) + sum(size(entry.body) + _BLOCK_BYTES for entry in shown)
        images = len(self.context_images) + sum(len(entry.images) for entry in shown)
        return (
            math.ceil((FRAME_BYTES - 2 * _BLOCK_BYTES + texts) / self.bytes_per_token) + images * IMAGE_TOKENS
        )


class _Attempt(NamedTuple):
    """A trajectory's messages as lines, as text, and as what is compared; `opening` of them are no answer."""

    trajectory_id: str
    lines: Sequence[Sequence[Line]]
    texts: Sequence[str]
    keys: Sequence[str]
    opening: int


def make_sheet(trajectories: Sequence[Trajectory], view: View = _DEFAULT, *, merge: bool = True) -> Sheet:
    """The group as `view` shows it. With `merge`, attempts that read the same become one entry.

    Relabelling or reordering the trajectories changes nothing but the ids. The longest common prefix is
    the context; where there is one entry only, the messages before the first answer. Raises InputError
    for no trajectory or a trajectory id that occurs twice.
    """
    _check_ids([trajectory.trajectory_id for trajectory in trajectories])
    clean = cache(harmless)
    attempts = [_attempt(trajectory, view, clean) for trajectory in trajectories]
    shared = _common([attempt.keys for attempt in attempts])
    keyed = sorted(("\n".join(a.keys[shared:]), a.texts, a.trajectory_id, a) for a in attempts)
    if merge:
        alike = [[item[-1] for item in same] for _, same in groupby(keyed, key=lambda item: item[0])]
    else:
        alike = [[item[-1]] for item in keyed]
    if len(alike) == 1:
        shared = min(shared, alike[0][0].opening)
    return _sheet(alike, shared, view)


def _sheet(alike: Sequence[Sequence[_Attempt]], shared: int, view: View) -> Sheet:
    image_bytes = math.ceil(IMAGE_TOKENS * view.bytes_per_token)
    context = fit(_flat(alike[0][0].lines[:shared]), view.context_bytes, image_bytes)
    prefix, prefix_images = _text(context.lines)
    own = [_flat(same[0].lines[shared:]) for same in alike]
    room = view.context_bytes - size(prefix) - 1 - image_bytes * len(prefix_images)
    names = name_repeats(own, room) if view.repeats == "once" else {}
    entries: list[Entry] = []
    cut: dict[str, float] = {}
    for same, lines in zip(alike, own, strict=True):
        fitted = fit(with_names(lines, names), view.attempt_bytes, image_bytes)
        ids = tuple(attempt.trajectory_id for attempt in same)
        body, images = _text(fitted.lines)
        entries.append(Entry(ids=ids, body=body or NOTHING, images=images))
        if lost := context.lost + fitted.lost:
            cut |= dict.fromkeys(ids, min(1.0, lost / sum(map(len, same[0].texts))))
    results = {name: definition(name, text) for text, name in names.items()}
    texts = [prefix, *results.values(), *(entry.body for entry in entries)]
    return Sheet(
        prefix=prefix,
        results=results,
        context_images=prefix_images,
        entries=tuple(entries),
        cut=cut,
        digest=_digest(texts, [prefix_images, *(entry.images for entry in entries)]),
        folded="\n".join(texts).lower(),
        bytes_per_token=view.bytes_per_token,
    )


def _attempt(trajectory: Trajectory, view: View, clean: Clean) -> _Attempt:
    lines = [lines_of(message, view, clean) for message in trajectory.messages]
    texts = ["\n".join(map(str, several)) for several in lines]
    keys = texts
    if view.volatile:
        scrubbed = _scrubbing(view.volatile)
        keys = ["\n".join(map(str, lines_of(message, view, scrubbed))) for message in trajectory.messages]
    if view.images == "pass":
        keys = [key + _addresses(several) for key, several in zip(keys, lines, strict=True)]
    return _Attempt(trajectory.trajectory_id, lines, texts, keys, _opening(trajectory.messages))


def _scrubbing(patterns: Sequence[str]) -> Clean:
    compiled = [re.compile(pattern) for pattern in patterns]

    def scrubbed(text: str) -> str:
        for pattern in compiled:
            text = pattern.sub("\0", text)
        return harmless(text)

    return scrubbed


def _addresses(lines: Sequence[Line]) -> str:
    """The images of a message as text that no message's own text can end in."""
    return "".join(f"\n<{json.dumps(image)}>" for line in lines for image in line.images)


def _common(attempts: Sequence[Sequence[str]]) -> int:
    """How many leading messages all attempts share."""
    shared = 0
    for column in zip(*attempts, strict=False):
        if column.count(column[0]) < len(column):
            break
        shared += 1
    return shared


def _opening(messages: Sequence[Message]) -> int:
    """How many messages come before the first that is an answer or a result."""
    roles = [message.get("role") in _OPENING_ROLES for message in messages]
    return [*roles, False].index(False)


def _flat(messages: Sequence[Sequence[Line]]) -> list[Line]:
    return [line for lines in messages for line in lines]


def _text(lines: Sequence[Line]) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    return "\n".join(map(str, lines)), tuple(image for line in lines for image in line.images)


def _digest(texts: Sequence[str], images: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    parts = [*texts, json.dumps(images)] if any(images) else texts
    return hashlib.sha256("\n<>\n".join(parts).encode()).hexdigest()


def _check_ids(ids: Sequence[str]) -> None:
    if not ids:
        raise InputError("a group to judge holds no trajectory")
    if len(set(ids)) < len(ids):
        raise InputError(f"a group to judge holds a trajectory id twice: {sorted(ids)}")
