"""The key of scenarios."""

from __future__ import annotations

from dataclasses import dataclass

from lab.spec.declare import key_field
from lab.spec.kinds import whole_number

LEAST, MOST = 1, 19


@dataclass(frozen=True, kw_only=True)
class IdleKeys:
    """What a scenario says of the processor."""

    niceness: int = key_field(LEAST, whole_number(LEAST, MOST), "niceness: 10")
    """How far behind others its ranks are where the processor is busy."""
