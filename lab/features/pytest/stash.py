"""Define the keys under which the plugin stores data in the configuration of a session, and in reports."""

from __future__ import annotations

from typing import Any

import pytest

POOL: pytest.StashKey[Any] = pytest.StashKey()
"""The warm clusters of this process; set when a test first requests one."""
DEADLINE: pytest.StashKey[float | None] = pytest.StashKey()
"""The monotonic time at which pytest-timeout ends the current test."""
SUMMARY_LINES: pytest.StashKey[list[str]] = pytest.StashKey()
"""Lines to print at the end of the session."""
RECORD = "lab_record"
"""Property of a test with the record of a run; JUnit files contain it too."""
