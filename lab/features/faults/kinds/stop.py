"""A node is shut down."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from lab.errors import LabError
from lab.features.faults.kind import Ground, ReadBack
from lab.features.faults.node_fault import PowerLost
from lab.spec.declare import key
from lab.spec.kinds import duration

_DEED = "shutdown"
_LONGEST_S = 3600


@dataclass(frozen=True, kw_only=True)
class Stop(PowerLost):
    """Its workers get SIGTERM, and after the grace period everything ends, as in maintenance that nobody announced."""

    does: ClassVar[str] = "a node is shut down: its workers get SIGTERM, and after a grace period everything ends"
    example: ClassVar[str] = "stop: {node: node2, grace: 2s}"
    shown_as: ClassVar[tuple[str, ...]] = ("node_lost", "killed")
    grace_s: float = key(1.0, duration(_LONGEST_S), "stop: {node: node2, grace: 2s}", name="grace")
    """What its workers have to save what they can."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`node2`, or `node2 2s`."""
        return f"{{node: {words[0]}, grace: {words[1]}}}" if len(words) == 2 else super().parse(words)

    def apply(self, ground: Ground) -> None:
        """Have the agent begin with it."""
        if ground.running(self.node):
            ground.ask(self.node, _DEED, {"grace_s": self.grace_s})

    def undo(self, ground: Ground) -> None:
        """Call it off, or start the node again."""
        if ground.running(self.node):
            with suppress(LabError):  # it has just ended
                ground.take_back(self.node, _DEED, {})
        super().undo(ground)

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether it has begun, or is over."""
        with suppress(LabError):
            if ground.running(self.node):
                return ReadBack(bool(ground.look_at(self.node, _DEED, {})["begun"]))
        return super().read_back(ground)


KIND = Stop
