"""The engines whose contract is tried: all."""

from __future__ import annotations

import pytest

from tests.engines.conftest import ENGINES, SWARM


@pytest.fixture(params=[*ENGINES, SWARM])
def engine(request: pytest.FixtureRequest, person: None) -> str:
    """Name of the engine under test."""
    return str(request.param)
