"""Removing old records: by number and by age, and never one that is still being written."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.errors import RecordError
from lab.record.read import Record


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What was removed, or would have been."""

    removed: tuple[tuple[Record, int], ...]
    """Each with its size in bytes."""
    in_progress: tuple[Record, ...]
    """Those that would have gone, but go on."""

    @property
    def size_bytes(self) -> int:
        """Of all together."""
        return sum(size for _, size in self.removed)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "removed": [{"run": record.run, "size_bytes": size} for record, size in self.removed],
            "size_bytes": self.size_bytes,
            "in_progress": [record.run for record in self.in_progress],
        }


def prune(records: Sequence[Record], *, keep: int, before: float | None, dry_run: bool) -> Pruned:
    """Remove records.

    Args:
        records: all there are, oldest first.
        keep: so many of the latest stay.
        before: only what began before this Unix time goes; None: whatever is not kept.
        dry_run: remove nothing.

    Raises:
        RecordError: one cannot be removed.
    """
    old = [one for one in records[: max(0, len(records) - keep)] if before is None or one.began() < before]
    going_on = tuple(one for one in old if one.in_progress)
    sized = tuple((one, one.size_bytes()) for one in old if one not in going_on)
    for record, _ in () if dry_run else sized:
        try:
            shutil.rmtree(record.path)
        except OSError as error:
            raise RecordError(f"the record {record.path} cannot be removed: {error.strerror}") from error
    return Pruned(removed=sized, in_progress=going_on)
