"""What the plugin says on the terminal beside the tests: which engine they get, and what is left of their clusters."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lab.errors import LabError
from lab.features.pytest.pool import pool_of
from lab.features.pytest.stash import SAID
from lab.report.harmless import harmless


def engine_text(config: pytest.Config) -> str:
    """Which engine tests get that do not say, and why."""
    try:
        engine, why = pool_of(config).engine()
    except LabError as error:
        return f"no engine: {harmless(error.message)}"
    because = "Docker answers" if config.getoption("lab_engine") == "auto" else "--lab-engine"
    return f"{harmless(why) or f'using the {engine.name} engine ({because})'}"


def close_pool(config: pytest.Config) -> None:
    """Remove the clusters of this process; what is to be said of them is said at the end of the session."""
    said: list[str] = []
    with suppress(KeyboardInterrupt):  # it is done by then, and the session ends anyway
        kept = pool_of(config).close()
        said = [f"kept for the next session; to remove it: lab down --name {name}" for name in kept]
    if hasattr(config, "workeroutput"):  # of pytest-xdist: only its controller has a terminal
        config.workeroutput["lab_said"] = [engine_text(config), *said]
    else:
        config.stash.setdefault(SAID, []).extend(said)
