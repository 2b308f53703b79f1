"""Fitting the lines of a transcript into a number of bytes, every cut marked where it was made.

Tool results are cut first, the longest first and down to the length of the next (water-filling),
each from its middle; where that is not enough, all other texts likewise; at last whole lines from the
middle. The first and the last line keep most. A mark begins with a `<`, and starts at the margin where
it stands for text; no text of an agent can do either.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from strop.judge.transcript import IMAGE, NEXT_LINE, Line
from strop.judge.view import FLOOR_BYTES

KEPT_BYTES = 400
"""What a line keeps at least, its introduction and the mark included, where it is kept at all."""

_MARK_BYTES = 80
_CUT_IMAGE = "<cut 1 image>"
_WHOLE = re.compile(rf"&lt;|<[^>]*>|{NEXT_LINE}")
_WIDEST = 16


@dataclass(frozen=True, slots=True)
class Fitted:
    """Lines that fit, and how many characters of the given ones they lack."""

    lines: Sequence[Line]
    lost: int


def size(text: str) -> int:
    """The UTF-8 bytes of `text`."""
    return len(text) if text.isascii() else len(text.encode())


def fit(lines: Sequence[Line], room: int, image_bytes: int) -> Fitted:
    """`lines`, joined by newlines, in at most `room` bytes, an image taking `image_bytes`.

    Holds for every room of FLOOR_BYTES and more. Lines that fit come back as they are.
    """
    pictures = sum(len(line.images) for line in lines)
    if sum(map(_size, lines)) + pictures * image_bytes <= room:
        return Fitted(lines, 0)
    most = max(0, min(room // 2, room - FLOOR_BYTES)) // image_bytes
    kept = _with_images(lines, pictures, most)
    fitted = _fit_texts(kept, room - min(most, pictures) * image_bytes)
    dropped = max(0, pictures - most) * len(IMAGE)
    return Fitted(fitted.lines, fitted.lost + dropped)


def _fit_texts(lines: Sequence[Line], room: int) -> Fitted:
    """The three stages: results, then all texts, then whole lines."""
    whole = [_size(line) for line in lines]
    floors = [KEPT_BYTES] * len(lines)
    floors[0] = floors[-1] = max(KEPT_BYTES, room // 8)
    least = [min(pair) for pair in zip(whole, floors, strict=True)]
    results_least = [
        low if line.is_result else high for line, low, high in zip(lines, least, whole, strict=True)
    ]
    if sum(results_least) <= room:
        return _cut_all(lines, _levelled(results_least, whole, room))
    if sum(least) <= room:
        return _cut_all(lines, _levelled(least, results_least, room))
    return _without_middle(lines, least, room)


def _levelled(low: Sequence[int], high: Sequence[int], room: int) -> list[int]:
    """Sizes between `low` and `high` of sum at most `room`, cut to the highest common level that fits."""
    level, too_high = 0, room + 1
    while too_high - level > 1:
        middle = (level + too_high) // 2
        if sum(_at_level(low, high, middle)) <= room:
            level = middle
        else:
            too_high = middle
    return _at_level(low, high, level)


def _at_level(low: Sequence[int], high: Sequence[int], level: int) -> list[int]:
    return [min(most, max(least, level)) for least, most in zip(low, high, strict=True)]


def _without_middle(lines: Sequence[Line], sizes: Sequence[int], room: int) -> Fitted:
    """As many lines from both ends as fit, cut to `sizes`, and one mark for those between."""
    left = room - _MARK_BYTES
    begin, end = 0, len(lines)
    while end - begin > 1:
        at = end - 1 if len(lines) - end <= begin else begin
        left -= sizes[at]
        if left < 0:
            break
        begin, end = (begin, at) if at >= end - 1 else (at + 1, end)
    middle = lines[begin:end]
    steps = f"{len(middle)} step{'s' if len(middle) > 1 else ''}"
    lost = sum(_chars(line) for line in middle)
    first, last = _cut_all(lines[:begin], sizes[:begin]), _cut_all(lines[end:], sizes[end:])
    mark = Line(f"<cut {steps}, {lost} characters>", "")
    return Fitted([*first.lines, mark, *last.lines], first.lost + lost + last.lost)


def _cut_all(lines: Sequence[Line], sizes: Sequence[int]) -> Fitted:
    cut = [_cut(line, most) for line, most in zip(lines, sizes, strict=True)]
    return Fitted([line for line, _ in cut], sum(lost for _, lost in cut))


def _cut(line: Line, most: int) -> tuple[Line, int]:
    """The line in at most `most` bytes, its text cut from the middle, and the characters it lost."""
    text = line.text
    if _size(line) <= most:
        return line, 0
    room = most - size(line.head) - 1 - len(f"\n{_mark(len(text))}{NEXT_LINE}")
    first, last = _ends(text, room)
    lost = len(text) - len(first) - len(last)
    images = line.images
    kept = (*images[: first.count(IMAGE)], *images[len(images) - last.count(IMAGE) :])
    return Line(line.head, f"{first}\n{_mark(lost)}{NEXT_LINE if last else ''}{last}", kept), lost


def _ends(text: str, room: int) -> tuple[str, str]:
    """Beginning and end of `text`, `room` bytes together, with no character, escape or mark cut apart."""
    encoded = text.encode()
    first = encoded[: room // 2].decode(errors="ignore")
    last = encoded[len(encoded) - (room - room // 2) :].decode(errors="ignore")
    begin, end = len(first), len(text) - len(last)
    begin, end = _clear_of(text, begin)[0], _clear_of(text, end)[1]
    return text[:begin].rstrip(), text[end:].lstrip()


def _clear_of(text: str, at: int) -> tuple[int, int]:
    """Begin and end of what stands over position `at` and must stay whole; `at` twice where nothing does."""
    start = max(0, at - _WIDEST)
    for found in _WHOLE.finditer(text, start, at + _WIDEST):
        if found.start() < at < found.end():
            return found.span()
    return at, at


def _with_images(lines: Sequence[Line], pictures: int, most: int) -> list[Line]:
    """The lines with at most `most` images, those nearest to both ends; a mark where one is left out."""
    if pictures <= most:
        return list(lines)
    first, last = (most + 1) // 2, pictures - most // 2
    kept, seen = [], 0
    for line in lines:
        stays = [not first <= place < last for place in range(seen, seen + len(line.images))]
        seen += len(stays)
        kept.append(_with_some(line, stays))
    return kept


def _with_some(line: Line, stays: Sequence[bool]) -> Line:
    """The line with those of its images that stay."""
    around = line.text.split(IMAGE)
    marks = [IMAGE if stay else _CUT_IMAGE for stay in stays]
    text = around[0] + "".join(mark + after for mark, after in zip(marks, around[1:], strict=True))
    return Line(line.head, text, tuple(compress(line.images, stays)))


def _mark(characters: int) -> str:
    return f"<cut {characters} characters>"


def _size(line: Line) -> int:
    return size(line.head) + size(line.text) + 1


def _chars(line: Line) -> int:
    return len(str(line))
