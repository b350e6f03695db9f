"""What the plugin knows of a session before anything heavy is imported."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.spec.load import looks_like_one

if TYPE_CHECKING:
    from lab.features.pytest.pool import Pool

POOL: pytest.StashKey[Pool] = pytest.StashKey()
"""The warm clusters of this process; there as soon as a test asks for one."""
DEADLINE: pytest.StashKey[float | None] = pytest.StashKey()
"""The monotonic time at which pytest-timeout ends the test that runs now."""
SAID: pytest.StashKey[list[str]] = pytest.StashKey()
"""Lines for the end of the session."""


def is_test(path: Path, parent: pytest.Collector) -> bool:
    """Whether a YAML file is a scenario, or one that somebody has named and that should be."""
    if parent.session.isinitpath(path):
        return True
    patterns = parent.config.getini("lab_files")
    return any(fnmatch(path.as_posix(), f"*/{pattern}") for pattern in patterns) and looks_like_one(path)
