"""A planted judge in a process of its own, so that it takes no time from whoever is measured."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from strop.judge.planted import Faults, Planted, PlantedServer, Service

KEPT = 1


@contextmanager
def planted(judge: Planted, latency_s: float = 0.0) -> Iterator[str]:
    """The base URL of a planted judge that answers after `latency_s`, until the block ends."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(judge, latency_s, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join(10)


def _serve(judge: Planted, latency_s: float, channel: Connection) -> None:
    with PlantedServer(judge, Faults(latency_s=latency_s), Service(kept=KEPT)) as server:
        channel.send(server.base_url)
        channel.recv()
