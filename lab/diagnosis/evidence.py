"""What a judgement starts from: the facts of a run, its traces, and where its ranks were; and the judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from lab.diagnosis.facts import RankFacts, RunFacts, read_facts
from lab.feature import feature_findings
from lab.frozen import Frozen
from lab.record.events import Dumped
from lab.record.layout import TRACE
from lab.record.record_files import list_folder
from lab.record.result import Culprit
from lab.spec.scenario import Verdict

if TYPE_CHECKING:
    from lab.diagnosis.finding import CodeLocation, Finding
    from lab.record.read import Record
    from lab.trace.model import Call, Trace
    from lab.trace.steps import Step

_MAX_TRACE_BYTES = 16 << 20
"""A verdict does not wait until longer traces have been read; `lab explain` does."""


class Judgement(Frozen):
    """The bare outcome of a run, before what the scenario expects is considered."""

    verdict: Verdict
    reason: str
    """One sentence, for a person."""
    culprit: Culprit | None = None
    findings: tuple[Finding, ...] = ()
    """What it rests on, the first cause first; none of a run in which all is well."""
    summary: str = ""
    """What ended the run, in short, as a clause that names who it was; empty: the reason says it."""


@dataclass(kw_only=True)
class Evidence:
    """The same at the end of a run as from its record.

    What reads traces and stacks is imported when it is asked for: a run that passes needs neither.
    """

    facts: RunFacts
    record: Record
    """Where the traces are, and the sources that stacks name."""

    @cached_property
    def ranks(self) -> dict[int, RankFacts]:
        """By number."""
        return {rank.rank: rank for rank in self.facts.ranks}

    @cached_property
    def trace(self) -> Trace:
        """What the ranks called."""
        from lab.trace.read import read_trace

        return read_trace(self.record)

    @cached_property
    def steps(self) -> list[Step]:
        """Their calls put together."""
        from lab.trace.steps import match_steps

        return match_steps(self.trace)

    @cached_property
    def unfinished_steps(self) -> set[str]:
        """The titles of steps that never ended."""
        return {step.title for step in self.steps if step.state != "completed"}

    @cached_property
    def step_of(self) -> dict[tuple[int, int], Step]:
        """By rank and index of its call."""
        return {(call.rank, call.index): step for step in self.steps for call in step.calls.values()}

    @cached_property
    def dumped(self) -> Dumped | None:
        """That nobody saw the run, and it is known from dumps alone; None of any other run."""
        return next((event for event in self.record.events() if isinstance(event, Dumped)), None)

    @cached_property
    def untimed(self) -> Literal["", "stepped", "dumped"]:
        """Why how long anything took says nothing of this run; empty where it does."""
        return "dumped" if self.dumped is not None else "stepped" if self.record.plan().stepped else ""

    @cached_property
    def has_readable_trace(self) -> bool:
        """Whether there is a trace that a verdict can wait for."""
        sizes = list_folder(self.record.path, TRACE).values()
        return sum(sizes) <= _MAX_TRACE_BYTES and self.trace.recorded

    @cached_property
    def end_s(self) -> float:
        """Seconds of the trace's clock at which the run was over: its stacks were taken, or its last rank ended."""
        origin = self.trace.origin or min((rank.started for rank in self.facts.ranks if rank.started), default=0.0)
        times = [rank.stack_time or rank.ended for rank in self.facts.ranks]
        times += [node.time for node in self.facts.lost_nodes]
        return max([self.trace.last, *(time - origin for time in times if time is not None)], default=0.0)

    def calls(self, rank: int) -> list[Call]:
        """What a rank called, in order."""
        return self.trace.ranks[rank].calls if rank in self.trace.ranks else []

    def parameter_names(self, rank: int) -> list[str]:
        """Names of the parameters of a rank's one DDP module, by their numbers; empty where there are several."""
        modules = self.trace.ranks[rank].modules if self.has_readable_trace and rank in self.trace.ranks else []
        return [parameter.name for parameter in modules[0].parameters] if len(modules) == 1 else []

    def last_line(self, rank: int) -> str:
        """The line of the last call of a rank; empty where that is not known."""
        return "".join(call.source for call in self.calls(rank)[-1:])

    def step(self, call: Call) -> Step | None:
        """The step that a call belongs to."""
        return self.step_of.get((call.rank, call.index))

    def broken_call(self, rank: int) -> tuple[Call, Step] | None:
        """The first call of a rank that failed or never ended, with its step."""
        call = next((call for call in self.calls(rank) if call.state != "completed"), None)
        return (call, step) if call is not None and (step := self.step(call)) is not None else None

    def stack_location(self, rank: RankFacts) -> CodeLocation | None:
        """The line of its script where a rank was when its stack was taken."""
        from lab.diagnosis.stacks import find_location

        return find_location(rank.stack, self.record.path) if rank.stack else None

    def thread_location(self, rank: RankFacts) -> CodeLocation | None:
        """The line of the script where a thread of a rank was that keeps it from ending, its script being over."""
        from lab.diagnosis.stacks import find_threads, is_leaving

        threads = find_threads(rank.stack, self.record.path) if rank.stack and is_leaving(rank.stack) else []
        return next(iter(threads), None)

    def raise_location(self, rank: RankFacts) -> CodeLocation | None:
        """The line of its script where a rank raised."""
        from lab.diagnosis.stacks import find_raised

        return find_raised(rank.traceback, self.record.path)

    def last_location(self, rank: RankFacts) -> CodeLocation | None:
        """The last line of its script where a rank is known to have been."""
        return self.stack_location(rank) if rank.stack else self.raise_location(rank)


def read_evidence(record: Record) -> Evidence:
    """Everything that a record knows, without its `result.json`; `lab.diagnosis.explain` reports what is missing."""
    evidence = Evidence(facts=read_facts(record), record=record)
    for rank in evidence.trace.ranks:
        evidence.facts.rank(rank)
    return evidence


class Explained(NamedTuple):
    """A run whose causes are known."""

    evidence: Evidence
    causes: Sequence[Finding]
    ended_well: bool
    """Whether it did not hang or fail."""


def apply_rules(run: object, *names: str) -> list[Finding]:
    """What rules of features find: functions of the evidence of a run that return findings.

    `Feature.findings` names them by when they are asked:

    | name | what they find |
    |---|---|
    | `cut` | where the network was broken when the run was over |
    | `connections` | which connection between nodes broke first, by itself |
    | `disagreements` | what ranks called differently |
    | `groups` | what ranks did to worlds and groups that can have stopped a run |
    | `rendezvous` | what kept ranks in init_process_group, or failed them there |
    | `stand_off` | why ranks wait for each other, of an `ends.Waiting`, where that is no plain ring |
    | `counts` | in a run that broke, what ranks had done more or less often than others |
    | `state` | what ranks hold that should be the same on all of them |
    | `results` | what operations gave that no inputs give |
    | `values` | what ranks brought to operations that spoils what those give |
    | `hints` | what may be wrong |
    | `explain` | for `lab explain`, what else is true of a run; they are given an `Explained` |
    """
    return [one for name in names for rule in feature_findings(name) for one in rule(run)]
