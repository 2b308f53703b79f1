"""Simulated judges with known properties, for tests of whatever relies on a judge."""

from strop.judge.planted.bad import READABLE, UNREADABLE, BadReply, spread
from strop.judge.planted.behaviour import INJECTION, Planted, Reply, marked_quality
from strop.judge.planted.reading import Asked
from strop.judge.planted.server import Exchange, Faults, PlantedServer, Served, Service

__all__ = [
    "INJECTION",
    "READABLE",
    "UNREADABLE",
    "Asked",
    "BadReply",
    "Exchange",
    "Faults",
    "Planted",
    "PlantedServer",
    "Reply",
    "Served",
    "Service",
    "marked_quality",
    "spread",
]
