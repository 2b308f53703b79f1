"""One heap for all threads, and what is free given back."""

import pytest

from strop.engines.local import memory


def test_all_threads_share_one_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc's malloc.h: M_ARENA_MAX is -8; mallopt answers 1 where it did as told."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(memory, "_glibc", lambda name: lambda *given: asked.append((name, *given)))
    memory.share_heap()
    memory.release()
    assert asked == [("mallopt", -8, 1), ("malloc_trim", 0)]


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: pytest.fail("a library was opened"))
    memory.share_heap()
    memory.release()
