"""One heap for all threads, and what is free given back."""

import pytest

from strop.engines.local import memory


def test_all_threads_share_one_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc's malloc.h: M_ARENA_MAX is -8, M_MMAP_THRESHOLD -3; mallopt answers 1 where it did as told."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(memory, "_glibc", lambda name: lambda *given: asked.append((name, *given)))
    memory.share_heap()
    memory.map_large_blocks()
    memory.release()
    assert asked == [("mallopt", -8, 1), ("mallopt", -3, 2**18), ("malloc_trim", 0)]


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    opened: list[object] = []
    monkeypatch.setattr(memory.ctypes, "CDLL", opened.append)
    memory.share_heap()
    memory.map_large_blocks()
    memory.release()
    assert opened == []
