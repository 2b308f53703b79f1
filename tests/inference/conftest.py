"""Fixtures of the gateway's tests."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from gateway_bench import LOOKUP, Bench, make_bench


@pytest.fixture
def bench() -> Callable[..., Bench]:
    return make_bench


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return lambda coroutine: asyncio.run(asyncio.wait_for(coroutine, 250))


@pytest.fixture
def lookup() -> dict[str, Any]:
    return LOOKUP
