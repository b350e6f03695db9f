"""What a run does now, as data: every rank with its call, whom it waits for, and what came out. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CallNow:
    """A call of a rank."""

    text: str
    """`all_reduce #3`, `recv from rank 1`."""
    op: str
    place: str
    """The line of the script, `file:line`; empty where it is not known."""
    state: str
    """`held`, `inside`, `completed`, `failed`."""
    began_s: float
    """Seconds since the run began."""
    took_s: float | None = None
    """None where it is not over."""


@dataclass(frozen=True, kw_only=True)
class RankNow:
    """A rank."""

    rank: int
    node: str
    state: str
    """`starting`, `outside` any call, `inside` a call, `held` at one, `halted` by a signal, `ended`."""
    told: str
    """In words: `in all_reduce #3`, `in backward`, `in no call`, `exit 0`; `running` where calls are not on record."""
    place: str = ""
    """The line of the script that it is at, as far as calls tell it."""
    since_s: float | None = None
    """For how long; None where nobody knows."""
    waits_for: tuple[int, ...] = ()
    """Ranks without which its call cannot end."""
    bad: bool = False
    """Whether it ended, and not as it should."""
    calls: int = 0
    """How many it has made."""
    recent: tuple[CallNow, ...] = ()
    """The last of them, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line that a rank printed, or that the watcher has to say."""

    number: int
    """From 1, in the order of arrival."""
    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error."""
    time_s: float
    """Seconds since the run began."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Now:
    """A run at one moment."""

    run: str
    scenario: str
    engine: str
    ranks: tuple[RankNow, ...]
    elapsed_s: float | None
    """Seconds since the first worker was let go; None before."""
    over: bool = False
    verdict: str = ""
    """Empty while the run goes on."""
    reason: str = ""
    remarks: tuple[str, ...] = ()
    """What keeps the view from being whole, a sentence each."""
    next: str = ""
    """What a key press lets go: `all_reduce #3`; empty where nobody is held."""
    next_steps: tuple[str, ...] = ()
    """The titles of the steps that it lets go, where they are whole."""
    stepping: bool = False
    """Whether ranks are held before each call."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)
