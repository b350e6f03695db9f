"""A dry run: what would run, and what would be made for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.engine.protocol import Request
from lab.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """One run that was only planned."""

    plan: Plan
    requests: tuple[Request, ...] = ()
    """What makes its cluster; empty where one is there, or is made for an earlier run, or no engine answers."""

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, with the requests."""
        return {**self.plan.to_json(), "requests": [vars(request) for request in self.requests]}
