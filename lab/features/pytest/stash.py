"""What the plugin keeps in the stash of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab.features.pytest.pool import Pool

POOL: pytest.StashKey[Pool] = pytest.StashKey()
"""The warm clusters of this process; there as soon as a test asks for one."""
DEADLINE: pytest.StashKey[float | None] = pytest.StashKey()
"""The monotonic time at which pytest-timeout ends the test that runs now."""
SAID: pytest.StashKey[list[str]] = pytest.StashKey()
"""Lines for the end of the session."""
