"""Writes a page, whole or not at all."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import RecordError
from lab.record.record_files import replace_file, write_file


def save(page: bytes, path: Path, record: Path | None = None) -> None:
    """Write a page.

    Args:
        page: its bytes.
        path: where it is to be.
        record: the record that it belongs into; None: the user named its place.

    Raises:
        RecordError: it cannot be written.
    """
    try:
        if record is not None:
            write_file(record, path.name, page, make_folders=False)
            return
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_file(parent, path.name, page)
        finally:
            os.close(parent)
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
