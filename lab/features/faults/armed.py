"""One fault of a run: whether its event has come, what became of it, and how that is told."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.features.faults.fault import Fault, fault_data, fault_sentence
from lab.features.faults.when import When
from lab.node.messages.fault import Reached
from lab.record import events
from lab.record.result import Expectation

WAITING, APPLYING, IN_FORCE, HEALING, HEALED, FAILED = "waiting", "applying", "in force", "healing", "healed", "failed"


@dataclass
class Armed:
    """A fault of a run."""

    index: int
    """Its place in the plan."""
    fault: Fault
    state: str = WAITING
    journal: str = ""
    """What the journal calls it."""
    begun: float | None = None
    """Unix time at which its event came; None: it has not."""
    at: float | None = None
    """Unix time since when it is in force."""
    healed: float | None = None
    """Unix time at which it was taken back."""
    why: str = ""
    """What set it off."""
    rank: int | None = None
    """Whose event that was."""
    reached: Reached | None = None
    """The same, where that rank was held for it."""
    found: Mapping[str, Any] = field(default_factory=dict)
    """What was read back."""
    wrong: str = ""
    """Why it could not be done, or not waited for."""

    @property
    def when(self) -> str:
        """Its events, in words."""
        return fault_sentence(fault_data(self.fault)).removeprefix(f"{self.fault} ")

    @property
    def awaits(self) -> When | None:
        """The event that comes next, which sets it off or heals it; None: none does."""
        if self.state == WAITING:
            return self.fault.when
        return self.fault.until if self.state in (APPLYING, IN_FORCE) else None

    @property
    def node(self) -> str:
        """The node that it is done to, where that is one."""
        nodes = self.fault.what.nodes
        return nodes[0] if len(nodes) == 1 else ""

    @property
    def point(self) -> dict[str, Any]:
        """The call, or phase, at which a rank was held for it."""
        op = self.fault.when.op or self.fault.when.phase
        return {"op": op, "call": self.reached.call} if op and self.reached is not None else {}

    def event(self) -> events.Fault:
        """That it is in force."""
        told = events.Fault(self.at or time.time(), str(self.fault), self.rank, self.node, self.why)
        return told._replace(number=self.index, begun=self.begun, found=dict(self.found) or None, **self.point)

    def failed(self) -> events.FaultFailed:
        """That it could not be done."""
        return events.FaultFailed(time.time(), str(self.fault), self.node, self.wrong)

    def told(self, began: float | None) -> dict[str, Any]:
        """As results tell it; `began`: Unix time at which the workers were let go."""

        def since(moment: float | None) -> float | None:
            return round(moment - began, 6) if self.why and moment and began else None

        return {
            "fault": str(self.fault),
            "node": self.node,
            "rank": self.rank,
            **self.point,
            "at_s": since(self.at or self.begun),
            "healed_s": round(self.healed - began, 6) if self.healed and began else None,
            "why": self.why,
            "found": dict(self.found),
            "failed": self.wrong,
        }

    def expectation(self) -> Expectation:
        """As something that had to come."""
        return Expectation(
            what=f"fault {self.fault}",
            expected=self.when,
            got=f"({self.wrong})" if self.wrong else self.why or self.when,
            met=not self.wrong,
        )
