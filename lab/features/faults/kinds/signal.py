"""A signal is sent to the worker of a rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Chance, Ground, ReadBack
from lab.features.faults.rank_fault import RankFault
from lab.spec.declare import key
from lab.spec.kinds import choice

_STOPS = "SIGSTOP"
_NAMES = (
    *("SIGKILL", _STOPS, "SIGCONT", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGBUS"),
    *("SIGFPE", "SIGILL", "SIGUSR1", "SIGUSR2"),
)
_AFTERWARDS = {"SIGKILL": "", _STOPS: "T"}
"""The state of the process that the kernel sees to, whatever the script thinks of the signal; empty: it has ended."""
_PATIENCE_S = 2.0
_PAUSE_S = 0.005


@dataclass(frozen=True, kw_only=True)
class Signal(RankFault):
    """The worker ends, stops or goes on, or does what its script has it do; a stopped one is let go on at the end."""

    does: ClassVar[str] = "the worker of a rank gets a signal; one that SIGSTOP stopped goes on when it is healed"
    example: ClassVar[str] = "signal: {rank: 2, name: SIGSTOP}"
    shown_as: ClassVar[tuple[str, ...]] = ("killed", "stopped")
    name: str = key("SIGKILL", choice(_NAMES), "signal: {rank: 2, name: SIGSEGV}")
    """Which one."""

    @classmethod
    def drawn(cls, chance: Chance) -> Signal:
        """A rank that is killed, or ends in one of the ways in which native code does."""
        return cls(rank=chance.one_of(chance.ranks), name=chance.one_of(("SIGKILL", "SIGABRT", "SIGSEGV")))

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`2`, or `2 SIGSTOP`."""
        return f"{{rank: {words[0]}, name: {words[1]}}}" if len(words) == 2 else super().parse(words)

    def apply(self, ground: Ground) -> None:
        """Send it."""
        ground.ask(self.node_in(ground), "signal", {"rank": self.rank, "name": self.name})

    def undo(self, ground: Ground) -> None:
        """Let it go on, if it was stopped and is still there."""
        node = self.node_of(ground) if self.name == _STOPS else None
        if node is not None and ground.running(node):
            ground.take_back(node, "signal", {"rank": self.rank, "name": self.name})

    def read_back(self, ground: Ground) -> ReadBack:
        """What the process is doing; of a signal that scripts can catch, whatever that is."""
        until, expected = time.monotonic() + _PATIENCE_S, _AFTERWARDS.get(self.name)
        node = self.node_of(ground)
        while True:
            state = "" if node is None else ground.look_at(node, "signal", {"rank": self.rank})["state"]
            if expected in (None, state) or time.monotonic() > until:
                return ReadBack(expected in (None, state), {"state": state or "ended"})
            time.sleep(_PAUSE_S)

    def __str__(self) -> str:
        """`signal rank 2 with SIGSTOP`."""
        return f"signal rank {self.rank} with {self.name}"


KIND = Signal
