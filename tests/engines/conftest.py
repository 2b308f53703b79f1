"""Engines in tests wait for a slow machine's agents."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _patient(patient_sampler: None) -> None:
    """For every sampler that a test opens."""
