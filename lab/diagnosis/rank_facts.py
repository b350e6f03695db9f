"""What is known of one rank of a run, before anybody judges it."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

from lab.node.messages.agent import ThreadRaised


@dataclass
class RankFacts:
    """What is known of one rank. Times are Unix time of the lab's clock."""

    rank: int
    node: str = ""
    local_rank: int = 0
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    memory_bytes: int | None = None
    """What it held when it was killed for lack of memory, where its agent could tell."""
    stopped: bool = False
    """Whether the lab stopped it: it was alive until then."""
    halted: str = ""
    """The signal that had stopped it when the run was over, and that nothing had let it go on after."""
    node_lost: bool = False
    """Whether its node went away while it ran."""
    error: str = ""
    traceback: str = ""
    raised: float | None = None
    """When it raised; earlier than when it ended."""
    stack: str = ""
    """As faulthandler wrote it when it crashed, or when the run did not go on."""
    seen: float | None = None
    """When its stack was asked for."""
    notes: dict[str, Any] = field(default_factory=dict)
    threads: list[ThreadRaised] = field(default_factory=list)
    """Of its threads, those that ended by an error."""
    expected_code: int = 0
    """The exit code that is no failure; -9 stands for an end by signal 9."""
    parent: int | None = None
    """The worker whose script started it; None of a worker."""
    outlived: bool = False
    """Whether what started it ended as expected, however it ended itself."""

    @property
    def over(self) -> bool:
        """Whether nothing more can come from it."""
        return self.ended is not None or self.node_lost

    @property
    def alive(self) -> bool:
        """Whether it ran until the lab stopped it, or until the record ends."""
        return self.stopped or not self.over

    @property
    def failed(self) -> bool:
        """Whether it ended, other than expected, without being stopped."""
        if self.stopped or self.ended is None or self.outlived:
            return False
        return returncode(self.code, self.signal) != self.expected_code

    @property
    def left(self) -> bool:
        """Whether it ended as expected, without being stopped."""
        return self.ended is not None and not self.stopped and not self.failed


def returncode(code: int | None, name: str | None) -> int | None:
    """An exit code, or -9 for an end by SIGKILL, as `subprocess` and torchrun write it; None where neither is known."""
    number = signal.Signals.__members__.get(name or "")
    return code if number is None else -number
