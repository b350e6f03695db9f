"""What a test says of the cluster that it wants, by the marker `lab` or where functions are marked as distributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lab.engine.select import CHOICES
from lab.errors import LabError, UsageError
from lab.report.harmless import harmless
from lab.spec.kinds import parse_size
from lab.spec.reading import did_you_mean
from lab.words import listing

MARKER = "@pytest.mark.lab"
_COUNTS = ("nodes", "nproc_per_node", "gpus")
_SHAPE = (*_COUNTS, "engine", "image", "requirements", "data", "cpus", "memory", "strict", "env", "network")
"""What may be said, as `lab up` calls it."""


def wanted_by(item: pytest.Item) -> dict[str, Any]:
    """What the marker of a test says of its cluster; empty where it has none.

    Raises:
        UsageError: it says what it may not.
    """
    marker = item.get_closest_marker("lab")
    return checked_marker(marker) if marker is not None else {}


def refuse_wrong_marker(definition: pytest.Item, marker: pytest.Mark) -> None:
    """Refuse a marker that says what it may not, while tests are collected."""
    try:
        checked_marker(marker)
    except LabError as error:
        raise pytest.Collector.CollectError(f"{definition.nodeid}: {harmless(str(error))}") from None


def checked_marker(marker: pytest.Mark) -> dict[str, Any]:
    """What one marker says.

    Raises:
        UsageError: it says what it may not.
    """
    if marker.args:
        raise UsageError(f"{MARKER}: found {marker.args[0]!r}; allowed: keywords, such as nodes=3")
    return checked_shape(marker.kwargs, MARKER)


def checked_shape(said: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What somebody says of a cluster, as `Pool.cluster` takes it; what is None is left out.

    Args:
        said: by keyword.
        where: what every message begins with.

    Raises:
        UsageError: there is no such keyword, or it may not have that value.
    """
    for name in said:
        if name not in _SHAPE:
            meant = did_you_mean(name, _SHAPE)
            raise UsageError(f"{where}: there is no keyword {name!r}{meant}; allowed: {listing(_SHAPE)}")
    shape = {name: value for name, value in said.items() if value is not None}
    for name in _COUNTS:
        value = shape.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{where}: found {name}={value!r}; allowed: a whole number, 1 or more")
    engine = shape.get("engine", "auto")
    if engine not in CHOICES:
        meant = did_you_mean(str(engine), CHOICES)
        raise UsageError(f"{where}: found engine={engine!r}{meant}; allowed: {listing(CHOICES)}")
    if "network" in shape:
        from lab.features.faults.network import network_of

        try:
            network_of(shape["network"])
        except LabError as error:
            raise UsageError(f"{where}: {error.message}") from None
    if "memory" in shape:
        try:
            shape["memory_bytes"] = parse_size(shape.pop("memory"))
        except UsageError as error:
            raise UsageError(f"{where}: memory: {error.message}") from None
    return shape
