"""Where a reply's reasoning ends: the tags that models put around their thoughts, in all their spellings."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_NAME = r"(?:\w+:)?(?:think|thinking|thoughts?|reasoning|analysis|reflection|scratchpad)"
_TAGS = (
    (rf"<(?P<xml>{_NAME})(?:\s[^<>]*)?(?<!/)>", r"</{name}\s*>"),
    (r"\[(?P<square>think|thinking|reasoning)\]", r"\[/{name}\]"),
    (r"◁(?P<triangle>think|thinking)▷", r"◁/{name}▷"),
    (r"<\|begin_of_(?P<of>thought|reasoning)\|>", r"<\|end_of_{name}\|>"),
    (r"<\|start_(?P<start>thinking)\|>", r"<\|end_{name}\|>"),
    (r"<\|(?P<bar>think|thinking)\|>", r"<\|/{name}\|>"),
    (r"<\|channel>(?P<half>thought)", r"<channel\|>"),
    (
        r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?P<channel>analysis|commentary)\b",
        r"<\|channel\|>\s*final\b[^<>{{}}]*(?:<\|constrain\|>[^<>{{}}]*)?<\|message\|>",
    ),
)
_FLAGS = re.IGNORECASE | re.ASCII
_OPENING = re.compile("|".join(opening for opening, _ in _TAGS), _FLAGS)
_CLOSING = re.compile(
    "|".join(
        [
            *(closing.format(name=_NAME if "<(?P<xml>" in opening else r"\w+") for opening, closing in _TAGS),
            "assistantfinal",
        ]
    ),
    _FLAGS,
)
_CLOSING_OF = {next(iter(re.compile(opening, _FLAGS).groupindex)): closing for opening, closing in _TAGS}
_EMPTY = re.compile(rf"<{_NAME}\s*/>", _FLAGS)
_SPACE = re.compile("[\\s\u200b\u200c\u200d\u2060\ufeff]*")


@dataclass(frozen=True, slots=True)
class Tags:
    """Reasoning tags that stand free in a text: where the last one closes, and where one opens after it."""

    closed: int = -1
    opened: int | None = None


def after_reasoning(text: str) -> tuple[int, bool]:
    """Where the leading reasoning blocks end, and whether the last of them is never closed.

    A block ends at its first closing tag. Blocks further on are not skipped: a quoted pair of tags
    must not hide the judge's own verdict.
    """
    at = 0
    while True:
        space = _SPACE.match(text, at)
        begin = space.end() if space else at
        if empty := _EMPTY.match(text, begin):
            at = empty.end()
            continue
        opening = _OPENING.match(text, begin)
        if opening is None:
            return at, False
        closing = _closing_of(opening).search(text, opening.end())
        if closing is None:
            return opening.end(), True
        at = closing.end()


def free_tags(text: str, start: int, spans: Sequence[tuple[int, int]]) -> Tags:
    """The tags from `start` on that lie in none of `spans` (in order, apart from each other)."""
    begins = [begin for begin, _ in spans]

    def free(at: int) -> bool:
        place = bisect_right(begins, at) - 1
        return place < 0 or at >= spans[place][1]

    closed = max((m.start() for m in _CLOSING.finditer(text, start) if free(m.start())), default=-1)
    openings = _OPENING.finditer(text, max(start, closed))
    return Tags(closed, next((m.start() for m in openings if free(m.start())), None))


def _closing_of(opening: re.Match[str]) -> re.Pattern[str]:
    group, name = next((g, n) for g, n in opening.groupdict().items() if n is not None)
    return re.compile(_CLOSING_OF[group].format(name=re.escape(name)), _FLAGS)
