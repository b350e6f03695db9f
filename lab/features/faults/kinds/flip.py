"""A bit is flipped in what a rank brings to a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.rank_fault import ChangedData
from lab.spec.declare import key
from lab.spec.kinds import whole_number


@dataclass(frozen=True, kw_only=True)
class Flip(ChangedData):
    """As by a broken memory: the number is another one, and nothing says so."""

    does: ClassVar[str] = "one bit of what a rank brings to a call is flipped: silent data corruption"
    example: ClassVar[str] = "flip: {rank: 1, bit: 30}"
    shown_as: ClassVar[tuple[str, ...]] = ("outlier", "nonfinite", "not_a_number", "diverged", "wrong_result")
    bit: int = key(30, whole_number(0, 63), "flip: {rank: 1, bit: 22}")
    """Which bit of it, from the lowest; 30 is the highest of a float32's exponent."""

    @property
    def deed(self) -> Mapping[str, Any]:
        """For the worker."""
        return {"flip": {"element": self.element, "bit": self.bit}}

    def unfit_number(self, dtype: str, bits: int) -> str:
        """It has to have such a bit."""
        return "" if self.bit < bits else f"a {dtype} has no bit {self.bit}"

    def __str__(self) -> str:
        """`flip bit 30 of element 0 of rank 1`."""
        return f"flip bit {self.bit} of element {self.element} of rank {self.rank}"


KIND = Flip
