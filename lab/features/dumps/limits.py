"""How much of a job's dumps is read: dumps may come from anybody, and an import has to end in seconds."""

from __future__ import annotations

from dataclasses import dataclass

_LARGER = 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an import accepts, and how many calls it keeps; the defaults take less than 20 s on two cores."""

    files: int = 1 << 12
    """Entries of the folder of dumps, and ranks of one group."""
    size_bytes: int = 64 << 20
    """Of all dumps together."""
    calls: int = 1 << 16
    """Of all ranks together; each rank keeps its latest."""
    groups: int = 1 << 12
    """Groups that one dump tells of."""
    members: int = 1 << 24
    """Ranks that all groups of all dumps name together."""
    work: int = 2_000_000
    """Cost of the record, see `lab.features.dumps.cost`."""


DEFAULT = Limits()
LARGE = Limits(
    files=DEFAULT.files * _LARGER,
    size_bytes=DEFAULT.size_bytes * _LARGER,
    calls=DEFAULT.calls * _LARGER,
    groups=DEFAULT.groups * _LARGER,
    members=DEFAULT.members * _LARGER,
    work=DEFAULT.work * _LARGER,
)
"""What `--large` accepts: minutes, and some GB of memory."""
HINT = "`--large` reads up to 16 times as much, which takes minutes and some GB of memory"
