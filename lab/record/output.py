"""Read what ranks printed from the index and the logs of a record, in the order of arrival."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from lab.record.index import IndexReader, Piece
from lab.record.layout import INDEX, LOGS, rank_log
from lab.record.record_files import MOST_LINES_BYTES, MOST_LOG_BYTES, open_file

_MOST_OPEN = 64
"""Logs that are open at once: a run may have thousands of ranks."""


def read_output(folder: Path, reader: IndexReader, most_bytes: float = math.inf) -> Iterator[Piece]:
    """The pieces since the last one that the reader gave, about so many bytes of them.

    Raises:
        RecordError: a file is refused.
    """
    try:
        index = open_file(folder, INDEX, MOST_LINES_BYTES)
    except OSError:
        return
    size = 0
    with index, OpenLogs(folder) as logs:
        for entry in reader.read(index):
            data = logs.read(entry.rank, entry.offset, entry.length)
            yield Piece(rank=entry.rank, stream=entry.stream, time=entry.time, data=data)
            size += len(data)
            if size >= most_bytes:
                return


class OpenLogs:
    """The logs of a record, a few of them open at a time.

    Args:
        folder: the record.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> OpenLogs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)

    def read(self, rank: int, offset: int, length: int) -> bytes:
        """A part of the log of a rank, as far as it is there.

        Raises:
            RecordError: the log is refused.
        """
        with suppress(OSError):
            file = self._files.get(rank)
            if file is None:
                if len(self._files) >= _MOST_OPEN:
                    self._files.pop(next(iter(self._files))).close()
                file = self._files[rank] = open_file(self._folder, f"{LOGS}/{rank_log(rank)}", MOST_LOG_BYTES)
            file.seek(offset)
            return file.read(length)
        return b""
