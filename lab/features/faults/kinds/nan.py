"""A rank brings NaN to a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.rank_fault import ChangedData


@dataclass(frozen=True, kw_only=True)
class Nan(ChangedData):
    """One element of the tensors that the call takes is NaN when it begins."""

    does: ClassVar[str] = "one element of what a rank brings to a call becomes NaN"
    example: ClassVar[str] = "nan: 1"
    shown_as: ClassVar[tuple[str, ...]] = ("nonfinite", "not_a_number")

    @property
    def deed(self) -> Mapping[str, Any]:
        """For the worker."""
        return {"nan": {"element": self.element}}

    def unfit_number(self, dtype: str, bits: int) -> str:
        """Whole numbers are never NaN."""
        return "" if dtype.startswith(("float", "bfloat", "complex")) else f"no {dtype} is NaN"

    def __str__(self) -> str:
        """`nan in element 0 of rank 1`."""
        return f"nan in element {self.element} of rank {self.rank}"


KIND = Nan
