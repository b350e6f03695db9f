"""Writes a page, whole or not at all."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import RecordError


def save(page: bytes, path: Path) -> None:
    """Write a page.

    Raises:
        RecordError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(page)
        os.replace(temporary, path)
    except OSError as error:
        raise RecordError(
            f"cannot write the report {path}: {error.strerror or error}", "choose another file with --output"
        ) from error


@contextmanager
def collector_paused() -> Iterator[None]:
    """Reading a trace makes millions of objects, all of them kept: looking for garbage took a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
