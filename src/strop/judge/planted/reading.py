"""What a request to a judge shows and asks for: this package's prompts, and RULER's (openpipe-art)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["scores", "digit"]

_OURS = re.compile(r"(?<![^\n])<attempt (?:(\d+) )?([0-9a-z]+)>\n")
_OUR_KEY = re.compile(r'"(scores_[0-9a-z]+)"')
_RULER = re.compile(r'^<trajectory id="(\d+)">\n(.*)\n</trajectory>$', re.MULTILINE)
RULER_KEY = "scores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The attempts that a prompt shows, in the order shown, and the form of the reply it wants.

    `key` is the one that holds the scores in the reply; "" for kind "digit", where one digit is the
    whole reply. `texts` are the attempts' texts as shown, one for each of `ids`.
    """

    kind: Kind
    key: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]


def read_messages(messages: Any) -> Asked | None:
    """What the first user message that shows attempts asks for; None where there is none.

    A re-ask keeps the first user message, so it is read as the prompt that it repeats.
    """
    for message in messages if isinstance(messages, Sequence) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            text = plain_text(message.get("content"))
            asked = _ours(text) or _ruler(text)
            if asked is not None:
                return asked
    return None


def plain_text(content: Any) -> str:
    """The text of a message's content, of which images and the like are no part."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _ours(text: str) -> Asked | None:
    """Agent text holds no `<`, so whatever looks like a tag is one."""
    ids: list[str] = []
    texts: list[str] = []
    last = 0
    for opening in _OURS.finditer(text):
        last = text.find(f"\n</attempt {opening.group(2)}>", opening.end() - 1)
        ids.append(opening.group(1) or str(len(ids) + 1))
        texts.append(text[opening.end() : last if last >= 0 else len(text)])
    if not ids:
        return None
    key = _OUR_KEY.search(text, max(last, 0))
    kind: Kind = "digit" if key is None else "scores"
    return Asked(kind=kind, key="" if key is None else key.group(1), ids=tuple(ids), texts=tuple(texts))


def _ruler(text: str) -> Asked | None:
    """RULER writes each attempt as one line of JSON, so no attempt can end its own block."""
    blocks = _RULER.findall(text)
    if not blocks:
        return None
    ids, texts = zip(*blocks, strict=True)
    return Asked(kind="scores", key=RULER_KEY, ids=ids, texts=texts)
