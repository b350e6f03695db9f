"""What one test, an item to pytest, gets of the pool: the cluster of its shape, on its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lab.engine.protocol import Engine
from lab.features.pytest.pool import pool_of
from lab.features.pytest.warm import WarmCluster


def cluster_for(item: pytest.Item, shape: Mapping[str, Any]) -> WarmCluster:
    """The warm cluster of a shape for a test, up and whole.

    Args:
        item: the test.
        shape: as `checked_shape` or `wanted_by` gives it.

    Raises:
        LabError: it cannot be made.
        pytest.skip.Exception: the test needs another engine than the one that this session was told to use.
    """
    engine_for(item, shape.get("engine", "auto"))
    return pool_of(item.config).cluster(**shape)


def engine_for(item: pytest.Item, needed: str) -> Engine:
    """The engine of a test.

    Raises:
        EngineUnavailable: it does not answer.
        pytest.skip.Exception: this session was told to use another one.
    """
    told = item.config.getoption("lab_engine")
    if "auto" not in (needed, told) and needed != told:
        pytest.skip(f"needs the {needed} engine, and this session is told to use {told} (--lab-engine)")
    return pool_of(item.config).engine(needed)[0]
