"""What the plugin keeps with the configuration of a session."""

from __future__ import annotations

from typing import Any

import pytest

POOL: pytest.StashKey[Any] = pytest.StashKey()
"""The warm clusters of this process; there as soon as a test asks for one."""
DEADLINE: pytest.StashKey[float | None] = pytest.StashKey()
"""The monotonic time at which pytest-timeout ends the test that runs now."""
SUMMARY_LINES: pytest.StashKey[list[str]] = pytest.StashKey()
"""Lines for the end of the session."""
