"""What many unit tests need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe, which a test may close itself."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        with suppress(OSError):
            os.close(fd)
