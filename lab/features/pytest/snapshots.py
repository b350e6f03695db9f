"""Where the snapshots of a test lie, and whether they are written anew."""

from __future__ import annotations

import re

import pytest

from lab.feature import hook


def lay_beside(request: pytest.FixtureRequest) -> None:
    """Have `result.calls.matches_snapshot()` keep its files beside the file of the test, until that is over."""
    keep = hook("keep_beside_test")
    if keep is not None:
        item = request.node
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", item.nodeid.partition("::")[2]).strip("-")
        request.addfinalizer(keep(item.path, name, "`pytest --lab-update`", wants_update(item.config)))


def wants_update(config: pytest.Config) -> bool | None:
    """True where snapshots are written anew; None: only those that are missing, and none in CI."""
    return True if config.getoption("lab_update") else None
