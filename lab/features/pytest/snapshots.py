"""Where the snapshots of a test lie, and whether they are written anew."""

from __future__ import annotations

import re

import pytest

from lab.result import RecordedCalls


def lay_beside(request: pytest.FixtureRequest) -> None:
    """Have `result.calls.matches_snapshot()` keep its files beside the file of the test, until that is over."""
    from lab.run.snapshot import SnapshotHome  # it reads traces

    item = request.node
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", item.nodeid.partition("::")[2]).strip("-")
    RecordedCalls.home = SnapshotHome(
        file=item.path, name=name, how="`pytest --lab-update`", update=wants_update(item.config)
    )
    request.addfinalizer(_forget)


def _forget() -> None:
    RecordedCalls.home = None


def wants_update(config: pytest.Config) -> bool | None:
    """True where snapshots are written anew; None: only those that are missing, and none in CI."""
    return True if config.getoption("lab_update") else None
