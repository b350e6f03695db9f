"""The engines whose contract is tried: all."""

from __future__ import annotations

import pytest

from lab.features.zygote.nodes import SWITCH
from tests.engines.conftest import ENGINES, KUBERNETES, SLURM

FORKED = "docker with a zygote"


@pytest.fixture(
    params=[*ENGINES, SLURM, KUBERNETES, pytest.param(FORKED, marks=[pytest.mark.docker, pytest.mark.long])]
)
def engine(request: pytest.FixtureRequest, person: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of the engine under test; its clusters, of few nodes, have a zygote where that is tested."""
    if request.param == FORKED:
        monkeypatch.setenv(SWITCH, "always")
    return "docker" if request.param == FORKED else str(request.param)
