"""A rank does nothing any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.kind import Harm
from lab.features.faults.rank_fault import OwnDeed
from lab.spec.declare import key
from lab.spec.kinds import boolean


@dataclass(frozen=True, kw_only=True)
class Hang(OwnDeed):
    """It waits where it is, and holds the interpreter's lock: none of its threads runs Python, and no handler does."""

    does: ClassVar[str] = "a rank hangs where it is, with the interpreter's lock, so that nothing in it runs Python"
    example: ClassVar[str] = "hang: 1"
    shown_as: ClassVar[tuple[str, ...]] = ("never_came", "never_entered", "late")
    harm: ClassVar[Harm] = "slows"
    lock: bool = key(default=True, kind=boolean(), example="hang: {rank: 1, lock: false}")
    """Whether it holds the lock; without it, other threads of the rank go on."""

    @property
    def deed(self) -> Mapping[str, Any]:
        """For the worker."""
        return {"hang": {"lock": self.lock}}

    def __str__(self) -> str:
        """`hang rank 1`."""
        return f"hang rank {self.rank}{'' if self.lock else ' without the lock'}"


KIND = Hang
