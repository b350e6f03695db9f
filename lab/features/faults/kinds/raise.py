# ruff: noqa: N999 - a module is called like its key
"""A rank raises an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.rank_fault import OwnDeed
from lab.spec.declare import key
from lab.spec.kinds import choice, text

_ERRORS = (
    *("RuntimeError", "ValueError", "TypeError", "KeyError", "IndexError", "AssertionError", "ArithmeticError"),
    *("MemoryError", "OSError", "FileNotFoundError", "ConnectionError", "TimeoutError", "KeyboardInterrupt"),
)


@dataclass(frozen=True, kw_only=True)
class Raise(OwnDeed):
    """It comes out of the call, phase or note that the rank is at, and may be caught there."""

    does: ClassVar[str] = "a rank raises an exception, out of the call, phase or note that sets it off"
    example: ClassVar[str] = "raise: {rank: 1, error: ValueError}"
    shown_as: ClassVar[tuple[str, ...]] = ("exception",)
    error: str = key("RuntimeError", choice(_ERRORS), "raise: {rank: 1, error: OSError}")
    """Its class."""
    message: str = key("raised on purpose", text("what it says"), "raise: {rank: 1, message: no more data}")
    """What it says."""

    @property
    def deed(self) -> Mapping[str, Any]:
        """For the worker."""
        return {"raise": {"error": self.error, "message": self.message}}

    def __str__(self) -> str:
        """`raise ValueError in rank 1`."""
        return f"raise {self.error} in rank {self.rank}"


KIND = Raise
