"""What features add to the plan of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Part(Protocol):
    """What one feature adds to a plan."""

    name: str
    """Its key in `plan.json`."""
    companion: str
    """What goes along with the run, as `module:class`; see `lab.run.observe`."""

    def data(self) -> Any:
        """It as plain data."""

    def sentences(self) -> Iterable[str]:
        """What `--dry-run` says of it, a line each."""

    def before(self) -> Mapping[str, bool]:
        """Nodes that it stops or starts before the run begins, and whether each runs then."""

    def stopping(self, nodes: Iterable[str]) -> list[str]:
        """What of it stops any of these nodes before the run begins, in words."""

    def starting(self) -> list[str]:
        """What of it starts nodes while the run goes on, in words."""
