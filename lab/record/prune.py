"""Removing old records: by number and by age, and never one that is still being written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import RecordError
from lab.node.files import remove_tree
from lab.record.layout import RUNS
from lab.record.read import Record
from lab.record.record_files import is_record
from lab.words import plural


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What was removed, or would have been."""

    removed: tuple[tuple[Record, int], ...]
    """Each with its size in bytes."""
    in_progress: tuple[Record, ...]
    """Those that would have gone, but go on."""
    links: tuple[str, ...] = ()
    """Names of links to records: each was removed itself, and what it leads to stays."""

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
            "links": list(self.links),
        }


def prune(
    records: Sequence[Record], *, keep: int, before: float | None, dry_run: bool, links: Sequence[Path] = ()
) -> Pruned:
    """Remove records, and links to records.

    Args:
        records: all there are, oldest first.
        keep: so many of the latest stay.
        before: only what began before this Unix time goes; None: whatever is not kept.
        dry_run: remove nothing.
        links: what `list_links` gives; only those go whose own time is before that.

    Raises:
        RecordError: some cannot be removed; all others are.
    """
    old = [one for one in records[: max(0, len(records) - keep)] if before is None or one.began() < before]
    going_on = tuple(one for one in old if one.in_progress)
    sized = tuple((one, one.size_bytes()) for one in old if one not in going_on)
    old_links = [link for link in links if before is None or link.lstat().st_mtime < before]
    paths = [*(record.path for record, _ in sized), *old_links]
    left = [] if dry_run else [path for path in paths if not remove_tree(path)]
    if left:
        others = f" (and {plural(len(left) - 1, 'other')})" if len(left) > 1 else ""
        raise RecordError(f"the record {left[0]}{others} cannot be removed", "it has files that are not yours")
    return Pruned(removed=sized, in_progress=going_on, links=tuple(link.name for link in old_links))


def list_links(runs: Path = RUNS) -> list[Path]:
    """The links in a folder of runs that lead to a record."""
    with suppress(OSError), os.scandir(runs) as entries:
        links = [Path(entry.path) for entry in entries if entry.is_symlink()]
        return sorted(link for link in links if is_record(link))
    return []
