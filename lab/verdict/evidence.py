"""What a record knows of every rank, put together: how it ended, where it was, and what it called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.record.read import Record
from lab.trace.model import Call, Trace
from lab.trace.read import read_trace
from lab.trace.steps import Step, match
from lab.verdict.stacks import (
    Place,
    find_place,
    find_raised,
    find_raised_shortened,
    is_communicating,
    shorten_paths,
    shorten_stack,
)

_WAITS = re.compile(r"\b(?:wait|backward|synchronize|result|value)\(")


@dataclass(slots=True)
class RankEnd:
    """How a rank ended, and where it was when the run was judged."""

    rank: int
    node: str = ""
    started: bool = False
    ended: float | None = None
    """Seconds of the trace's clock; None: it never told."""
    code: int | None = None
    signal: str = ""
    stopped: bool = False
    """Whether the lab stopped it: it was alive until then."""
    lost: bool = False
    """Whether its node went away."""
    error: str = ""
    """First line of what it raised."""
    raised: float | None = None
    traceback: str = ""
    stack: str = ""
    """As faulthandler wrote it."""
    seen: float | None = None
    """When its stack was taken."""
    place: Place | None = None
    """The line of its script where it was when its stack was taken, or where it raised."""
    communicating: bool = False
    """Whether its stack ends where PyTorch waits for other ranks."""

    @property
    def waits_at_line(self) -> bool:
        """Whether it was at a line where a rank waits for calls that it issued before."""
        place = self.place
        return self.communicating or (place is not None and bool(place.call or _WAITS.search(place.source)))

    @property
    def alive(self) -> bool:
        """Whether it ran until the lab stopped it, or until the record ends."""
        return not self.lost and (self.stopped or self.ended is None)

    @property
    def left(self) -> bool:
        """Whether it ended by itself, without an error."""
        return self.ended is not None and not self.stopped and self.code == 0

    @property
    def failed(self) -> bool:
        """Whether it raised, exited with a code other than 0, or was killed; not by the lab."""
        return self.ended is not None and not self.stopped and self.code != 0


@dataclass(slots=True)
class Evidence:
    """Everything that explanations start from."""

    trace: Trace
    steps: list[Step]
    ends: dict[int, RankEnd]
    problems: list[str] = field(default_factory=list)
    over: float = 0.0
    """Seconds at which the run was over: its ranks' stacks were taken, or the last of them ended."""
    step_of: dict[tuple[int, int], Step] = field(default_factory=dict)
    """By rank and index of its call."""

    @property
    def traced(self) -> bool:
        """Whether there is any trace."""
        return any(rank.recorder or rank.calls for rank in self.trace.ranks.values())

    def calls(self, rank: int) -> list[Call]:
        """What a rank called, in order."""
        return self.trace.ranks[rank].calls if rank in self.trace.ranks else []

    def step(self, call: Call) -> Step | None:
        """The step that a call belongs to."""
        return self.step_of.get((call.rank, call.index))


def read_evidence(record: Record) -> Evidence:
    """Read everything; what is missing is told in `Evidence.problems`. Needs no `result.json`."""
    trace = read_trace(record)
    steps = match(trace)
    events = list(record.events())
    ends = {rank: RankEnd(rank=rank, node=node) for rank, node in record.workers().items()}
    for rank in trace.ranks:
        ends.setdefault(rank, RankEnd(rank=rank))
    evidence = Evidence(trace=trace, steps=steps, ends=dict(sorted(ends.items())))
    origin = trace.origin or min((e["time"] for e in events if isinstance(e.get("time"), float)), default=0.0)
    for event in events:
        _take(event, evidence.ends, origin)
    if not events and record.complete:
        _take_result(record.result(), evidence.ends)
    for end in evidence.ends.values():
        _locate(end, record.path)
    evidence.problems = _problems(record, evidence, bool(events))
    times = [time for end in evidence.ends.values() for time in (end.seen or end.ended,) if time is not None]
    evidence.over = max([trace.last, *times], default=0.0)
    evidence.step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    return evidence


def _problems(record: Record, evidence: Evidence, events: bool) -> list[str]:
    problems = []
    if not record.plan():
        problems.append("the record has no readable plan.json, so nobody knows how many ranks there were")
    if not events:
        problems.append("the record has no readable events.jsonl, so it is not known how ranks ended")
    if not evidence.traced:
        return [*problems, "the run has no trace: what its ranks called is not known"]
    killed = [end.rank for end in evidence.ends.values() if end.stopped or end.signal or end.lost]
    expected = tuple(f"rank {rank}: its trace ends before the worker did" for rank in killed)
    return problems + [problem for problem in evidence.trace.problems if not problem.startswith(expected)]


def _take(event: Mapping[str, Any], ends: dict[int, RankEnd], origin: float) -> None:
    kind, time = event.get("event"), event.get("time")
    when = float(time) - origin if isinstance(time, (int, float)) else None
    if kind == "node lost":
        for end in ends.values():
            if end.node == event.get("node") and end.ended is None:
                end.lost, end.ended = True, when
        return
    rank = event.get("rank")
    if not isinstance(rank, int) or rank < 0:
        return
    end = ends.setdefault(rank, RankEnd(rank=rank, node=str(event.get("node", ""))))
    if kind == "started":
        end.started = True
    elif kind == "stack":
        end.stack, end.seen = str(event.get("text", "")), when
    elif kind == "exited":
        end.ended = when
        _take_end(event, end)
        raised = event.get("raised")
        end.raised = float(raised) - origin if isinstance(raised, (int, float)) else None


def _take_end(facts: Mapping[str, Any], end: RankEnd) -> None:
    end.signal, end.stopped = str(facts.get("signal") or ""), bool(facts.get("stopped"))
    code = facts.get("code", facts.get("exit_code"))
    end.code = code if isinstance(code, int) else None
    error = str(facts.get("error") or "").strip()
    end.error = error.splitlines()[0] if error else ""
    end.traceback = str(facts.get("traceback") or "")


def _take_result(result: Mapping[str, Any], ends: dict[int, RankEnd]) -> None:
    """The ends of ranks as `result.json` tells them, where the events are lost."""
    for facts in result.get("ranks", ()):
        if not isinstance(facts, dict) or not isinstance(facts.get("rank"), int):
            continue
        end = ends.setdefault(facts["rank"], RankEnd(rank=facts["rank"], node=facts.get("node", "")))
        lived = facts.get("duration_s")
        end.ended = float(lived) if isinstance(lived, (int, float)) else 0.0
        end.stack = str(facts.get("stack") or "")
        _take_end(facts, end)


def _locate(end: RankEnd, folder: Path) -> None:
    if end.stack:
        end.place, end.communicating = find_place(end.stack, folder), is_communicating(end.stack)
    elif end.traceback:
        end.place = find_raised(end.traceback, folder) or find_raised_shortened(end.traceback, folder)


def shown_stack(end: RankEnd) -> str:
    """The stack or traceback that a person wants to see."""
    return shorten_stack(end.stack) if end.stack else shorten_paths(end.traceback)
