"""Input and output of the diagnosis: the facts of a run, its traces and stacks, and the judgement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from lab.diagnosis.facts import RankFacts, RunFacts, read_facts
from lab.feature import feature_findings
from lab.frozen import Frozen
from lab.record.events import Dumped
from lab.record.layout import INDEX
from lab.record.read import IndexReader, Record
from lab.record.record_files import MOST_LINES_BYTES, open_file
from lab.record.result import Culprit
from lab.spec.scenario import Verdict
from lab.words import group_pairs

if TYPE_CHECKING:
    from lab.diagnosis.finding import CodeLocation, Finding
    from lab.trace.model import Call, Trace
    from lab.trace.steps import Step

_MOST_BYTES = 4 << 20
"""Of larger traces, a verdict reads the ends, this much in total; `lab explain` reads everything."""

_OF_WHOLE_TRACES = ("counts", "state")
"""Rules that count from the beginning of traces."""


class Judgement(Frozen):
    """Outcome of a run before the scenario's expectations are applied."""

    verdict: Verdict
    reason: str
    """One sentence for people."""
    culprit: Culprit | None = None
    findings: tuple[Finding, ...] = ()
    """Findings that support it, the first cause first; empty for a run without problems."""
    summary: str = ""
    """The cause of the end, as a short clause that names the rank or node; empty if the reason contains it."""


@dataclass(kw_only=True, repr=False, eq=False)
class Evidence:
    """Everything that a diagnosis reads: at the end of a run the same as from its record.

    Modules that read traces and stacks are imported on use: a run that passes needs neither.
    """

    facts: RunFacts
    record: Record
    """Holds the traces, and the sources that stacks refer to."""
    whole: bool = False
    """Whether long traces are read from their beginning."""

    @cached_property
    def ranks(self) -> dict[int, RankFacts]:
        """By rank."""
        return {rank.rank: rank for rank in self.facts.ranks}

    @cached_property
    def trace(self) -> Trace:
        """What the ranks called."""
        from lab.trace.read import read_trace

        return read_trace(self.record, inf if self.whole else _MOST_BYTES)

    @cached_property
    def steps(self) -> list[Step]:
        """The calls of all ranks, matched into steps."""
        from lab.trace.steps import match_steps

        return match_steps(self.trace)

    @cached_property
    def unfinished_steps(self) -> set[str]:
        """Titles of the steps that did not complete."""
        return {step.title for step in self.steps if step.state != "completed"}

    @cached_property
    def step_of(self) -> dict[tuple[int, int], Step]:
        """By rank and index of the call."""
        return {(call.rank, call.index): step for step in self.steps for call in step.calls.values()}

    @cached_property
    def dumped(self) -> Dumped | None:
        """Set if the run is known from flight recorder dumps only; None for any other run."""
        return next((event for event in self.record.events() if isinstance(event, Dumped)), None)

    @cached_property
    def untimed(self) -> Literal["", "stepped", "dumped"]:
        """Why durations of this run mean nothing; empty if they do."""
        return "dumped" if self.dumped is not None else "stepped" if self.record.plan().stepped else ""

    @cached_property
    def end_s(self) -> float:
        """Seconds, by the trace's clock, at which the run was over: the lab stopped it, or its last rank ended.

        If the run is in progress and none of this is known, it is now.
        """
        origin = self.trace.origin or min((rank.started for rank in self.facts.ranks if rank.started), default=0.0)
        ends = [*(rank.stack_time or rank.ended for rank in self.facts.ranks), *(n.time for n in self.facts.lost_nodes)]
        known = [*filter(None, ends)] or [time.time()] * self.record.in_progress
        return min(self.trace.stopped_s, max([self.trace.last, *(end - origin for end in known)], default=0.0))

    @cached_property
    def printed_s(self) -> dict[int, list[float]]:
        """By rank: Unix times at which it printed."""
        with suppress(OSError), open_file(self.record.path, INDEX, MOST_LINES_BYTES) as index:
            return group_pairs((entry.rank, entry.time) for entry in IndexReader().read(index))
        return {}

    def calls(self, rank: int) -> list[Call]:
        """Return the calls of a rank, in order."""
        return self.trace.ranks[rank].calls if rank in self.trace.ranks else []

    @property
    def is_in_call(self) -> bool:
        """Whether a rank is in a call."""
        return any(call.state == "unfinished" for rank in self.ranks for call in self.calls(rank))

    def parameter_names(self, rank: int) -> list[str]:
        """Return the parameter names of a rank's only DDP module, by index; empty if it has several modules."""
        modules = self.trace.ranks[rank].modules if self.trace.recorded and rank in self.trace.ranks else []
        return [parameter.name for parameter in modules[0].parameters] if len(modules) == 1 else []

    def exit_line(self, rank: int) -> str:
        """Return the line at which a rank left its script with code 0; empty if unknown."""
        trace = self.trace.ranks.get(rank)
        return trace.exited_at or "the end of its script" * trace.stopped if trace is not None else ""

    def last_line(self, rank: int) -> str:
        """Return the line of a rank's last call; empty if unknown."""
        return "".join(call.source for call in self.calls(rank)[-1:])

    def step(self, call: Call) -> Step | None:
        """Return the step of a call."""
        return self.step_of.get((call.rank, call.index))

    def broken_call(self, rank: int) -> tuple[Call, Step] | None:
        """Return the first call of a rank that failed or never ended, with its step.

        If all are messages, one that no rank answered comes before the others.
        """
        calls = [(call, self.step(call)) for call in self.calls(rank) if call.state != "completed"]
        broken = [(call, step) for call, step in calls if step is not None]
        if all(step.message for _, step in broken):
            broken.sort(key=lambda one: not one[1].missing)
        return broken[0] if broken else None

    def stack_location(self, rank: RankFacts) -> CodeLocation | None:
        """Return the line of the script in a rank's stack."""
        from lab.diagnosis.stacks import find_location

        return find_location(rank.stack, self.record.path) if rank.stack else None

    def thread_location(self, rank: RankFacts) -> CodeLocation | None:
        """Return the line of a thread that keeps a rank from ending although its script is over."""
        from lab.diagnosis.stacks import find_threads, is_leaving

        return next(iter(find_threads(rank.stack, self.record.path)), None) if is_leaving(rank.stack) else None

    def raise_location(self, rank: RankFacts) -> CodeLocation | None:
        """Return the line of the script where a rank raised."""
        from lab.diagnosis.stacks import find_raised

        return find_raised(rank.traceback, self.record.path)

    def last_location(self, rank: RankFacts) -> CodeLocation | None:
        """Return the last known line of the script for a rank."""
        return self.stack_location(rank) if rank.stack else self.raise_location(rank)


def read_evidence(record: Record) -> Evidence:
    """Read everything from a record except `result.json`; `lab.diagnosis.explain` reports what is missing."""
    evidence = Evidence(facts=read_facts(record), record=record, whole=True)
    for rank in evidence.trace.ranks:
        evidence.facts.rank(rank)
    return evidence


class Explained(NamedTuple):
    """A run whose causes are known."""

    evidence: Evidence
    causes: Sequence[Finding]
    ended_well: bool
    """Whether the run neither hung nor failed."""


def apply_rules(run: object, *names: str) -> list[Finding]:
    """Apply rules of features: functions that take the evidence of a run and return findings.

    The names are keys of `Feature.findings`:

    | name | what the rules find |
    |---|---|
    | `cut` | where the network was broken when the run was over |
    | `connections` | which connection between nodes broke first, by itself |
    | `disagreements` | what ranks called differently |
    | `groups` | what ranks did to worlds and groups that can stop a run |
    | `rendezvous` | what blocked ranks in init_process_group, or made them fail there |
    | `stand_off` | why ranks wait for each other, if it is no simple ring; takes an `ends.Waiting` |
    | `counts` | in a run that broke, what ranks did more or less often than others |
    | `state` | state of ranks that should be the same on all of them |
    | `results` | results of operations that do not follow from the inputs |
    | `values` | inputs of operations that spoil the results |
    | `hints` | what may be wrong |
    | `explain` | for `lab explain`, other facts of a run; takes an `Explained` |
    """
    if isinstance(run, Evidence) and run.trace.is_tail:
        names = tuple(name for name in names if name not in _OF_WHOLE_TRACES)
    return [one for name in names for rule in feature_findings(name) for one in rule(run)]
