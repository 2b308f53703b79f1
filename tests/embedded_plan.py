"""What a run of the embedded model asks of a machine, for tests of the doctor."""

from dataclasses import replace
from typing import Any

from strop.engines.doctor.plan import Plan
from strop.engines.doctor.shape import embedded_shape


def embedded_plan(**changes: Any) -> Plan:
    """Float32 on the processor, unless told otherwise."""
    usual = Plan(
        shape=embedded_shape(),
        number="float32",
        device="cpu",
        rank=8,
        targets=None,
        first_layer=0,
        nodes=1024,
        checkpointing=False,
        slots=16,
        sessions=16,
        max_length=1024,
    )
    return replace(usual, **changes)
