"""What is known of a run while it goes on and when it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RankFacts:
    """What is known of one rank."""

    rank: int
    node: str
    local_rank: int
    started: float | None = None
    """Unix time of its node's clock."""
    ended: float | None = None
    code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    stopped: bool = False
    """Whether the lab stopped it."""
    node_lost: bool = False
    """Whether its node went away while it ran."""
    error: str = ""
    traceback: str = ""
    raised: float | None = None
    """When it raised; earlier than when it ended."""
    stack: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more can come from it."""
        return self.ended is not None or self.node_lost


@dataclass
class LostNode:
    """A node that went away in mid-run."""

    node: str
    how: str
    """How it ended, as the end of a sentence that begins with its name."""
    time: float


@dataclass
class RunFacts:
    """What is known of a run."""

    ranks: list[RankFacts]
    lost_nodes: list[LostNode] = field(default_factory=list)
    timed_out: bool = False
    interrupted: bool = False
    engine_lost: str = ""
    """Why the engine is thought to be gone."""
    refused: str = ""
    """Why an agent would not start the run."""
    began: float = 0.0
    """Monotonic time at which the workers were let go; 0: never."""
    duration_s: float = 0.0
    check: RankFacts | None = None
    """The scenario's own check, if it ran."""
    left_processes: int = 0
    """Processes that outlived their workers and were ended."""
