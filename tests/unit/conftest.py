"""What many unit tests need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe, which a test may close itself."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        with suppress(OSError):
            os.close(fd)


@pytest.fixture
def own_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock and no cluster is known, of any engine, but those that the test makes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for engine in ("LOCAL", "SLURM"):
        monkeypatch.setenv(f"LAB_{engine}_HOME", str(tmp_path / engine.lower()))
