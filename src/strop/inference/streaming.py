"""Text of a reply while it is being sampled: whole characters only, and nothing that may be taken back."""

from collections.abc import Callable, Sequence


class TextStream:
    """Token ids in, newly completed text out. Bytes of an unfinished character wait for the rest."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._window = 0
        self._read = 0

    def feed(self, token_id: int) -> str:
        """Text that became final with this token; often, but not always, the token's own."""
        self._ids.append(token_id)
        before = self._decode(self._ids[self._window : self._read])
        now = self._decode(self._ids[self._window :])
        if now.endswith("\ufffd") or len(now) <= len(before):
            return ""
        self._window, self._read = self._read, len(self._ids)
        return now[len(before) :]


class ShownText:
    """Holds back what may turn out not to be content.

    That is everything from the first marker (a stop string, the opening of a tool call), a tail that
    could be the beginning of one, and outer white space, which parsing strips.
    """

    def __init__(self, markers: Sequence[str]) -> None:
        self._markers = markers
        self._longest = max(map(len, markers), default=0)
        self._text = ""
        self._start = 0
        self._end = 0
        self._closed = False

    def feed(self, text: str) -> str:
        """The text that may be shown now."""
        if self._closed or not text:
            return ""
        searched = max(0, len(self._text) - self._longest)
        self._text += text
        limit = self._safe_end(searched)
        if self._end == self._start:
            self._start = self._end = len(self._text) - len(self._text.lstrip())
        limit = len(self._text[:limit].rstrip())
        if limit <= self._end:
            return ""
        shown, self._end = self._text[self._end : limit], limit
        return shown

    def rest(self, content: str) -> str:
        """What of the final content was not shown yet."""
        return content[len(self._text[self._start : self._end]) :]

    def _safe_end(self, searched: int) -> int:
        found = [at for at in (self._text.find(marker, searched) for marker in self._markers) if at >= 0]
        if found:
            self._closed = True
            return min(found)
        return len(self._text) - max((self._begun(marker) for marker in self._markers), default=0)

    def _begun(self, marker: str) -> int:
        """Length of the longest tail of the text that begins the marker."""
        sizes = range(min(len(marker) - 1, len(self._text)), 0, -1)
        return next((size for size in sizes if self._text.endswith(marker[:size])), 0)
