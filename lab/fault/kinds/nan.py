"""A rank brings NaN to a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.fault.rank_fault import ChangedData
from lab.keys.declare import key
from lab.keys.kinds import whole_number


@dataclass(frozen=True, kw_only=True)
class Nan(ChangedData):
    """One element of the tensors that the call takes is NaN when it begins."""

    does: ClassVar[str] = "one element of what a rank brings to a call becomes NaN"
    example: ClassVar[str] = "nan: 1"
    shown_as: ClassVar[tuple[str, ...]] = ("nonfinite", "not_a_number")
    element: int = key(0, whole_number(0, 2**40), "nan: {rank: 1, element: 5}")
    """Which one, over all tensors of the call, counted from 0."""

    @property
    def deed(self) -> Mapping[str, Any]:
        """For the worker."""
        return {"nan": {"element": self.element}}

    def __str__(self) -> str:
        """`nan in element 0 of rank 1`."""
        return f"nan in element {self.element} of rank {self.rank}"


KIND = Nan
