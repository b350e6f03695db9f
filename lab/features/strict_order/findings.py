"""Findings on strict order: calls that NCCL rejects, and orders of calls that a run passed by luck. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lab.diagnosis.ends import call_facts
from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import CallFacts, Finding, Kind, Words
from lab.diagnosis.wording import describe_wait, render_lines
from lab.features.strict_order.on_node.rules import REJECTED, TIMED_OUT
from lab.record.layout import SCENARIO
from lab.record.read import Record
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.read import RankReader, parse_count
from lab.trace.steps import Step
from lab.words import group_pairs, join_words, name_ranks

_BATCH = "batch_isend_irecv"
_MESSAGES = ("send", "recv", "isend", "irecv", _BATCH)
"""Functions of the script whose messages it orders itself; messages of libraries can be in batches."""
_MOST_CYCLES = 5
Id = tuple[int, int]
"""Rank and index of a call."""


def id_of(call: Call) -> Id:
    """Return the key of a call."""
    return call.rank, call.index


class Hop(NamedTuple):
    """One rank of a cycle: it made `first`, which waits for the next rank, before `then`, which the last one needs."""

    first: Call
    then: Call


# -- cycles in the order of calls


@dataclass
class _Path:
    """Collects for the calls of one rank which earlier calls have to complete first."""

    behind: dict[Id, list[Call]]
    last: list[Call] = field(default_factory=list)
    """Calls that every later call waits for."""
    pending: list[Call] = field(default_factory=list)
    """Messages in flight that only collectives and batches wait for."""
    handles: list[Call] = field(default_factory=list)
    """Calls whose handles the script has not waited for."""
    batch: list[Call] = field(default_factory=list)
    waited: int = 0

    def wait(self) -> None:
        """Note one wait: when there were as many as open handles, all of their calls have completed."""
        self.close_batch()
        self.waited += 1
        if self.handles and self.waited >= len(self.handles):
            self.last = [*self.last, *self.handles]
            self.pending = [call for call in self.pending if call not in self.handles]
            self.handles, self.waited = [], 0

    def add(self, call: Call) -> None:
        """Add the next call."""
        in_batch = call.seq is None and call.via == _BATCH
        if not in_batch or (self.batch and self.batch[-1].source != call.source):
            self.close_batch()
        if call.has_handle or in_batch:
            self.waited = 0 if not self.handles else self.waited
            self.handles.append(call)
        if in_batch:
            self.behind[id_of(call)] = [*self.last, *self.pending]
            self.batch.append(call)
        elif call.seq is not None:
            self.behind[id_of(call)] = [*self.last, *self.pending]
            self.last, self.pending = [call], []
        else:
            self.behind[id_of(call)] = [*self.last]
            if call.has_handle:
                self.pending.append(call)
            else:
                self.last = [call]

    def close_batch(self) -> None:
        """Let every later call wait for the batch as a whole."""
        if self.batch:
            self.last, self.pending, self.batch = [*self.batch], [], []


def _find_order(rank: RankTrace) -> dict[Id, list[Call]]:
    """Return for each call of a rank the calls that have to complete before it begins on a strict transport."""
    path, waits = _Path({}), deque(sorted(wait.begin for wait in rank.waits))
    for call in rank.calls:
        while waits and waits[0] <= call.begin:
            waits.popleft()
            path.wait()
        path.add(call)
    return path.behind


def find_cycles(trace: Trace, steps: Sequence[Step]) -> Iterator[tuple[Hop, ...]]:
    """Yield rings of ranks whose calls wait for each other if each call waits for the rank's earlier ones.

    Nothing is known about ranks whose threads make calls, and about messages of libraries.
    """
    messages = [call for rank in trace.ranks.values() for call in rank.calls if call.seq is None]
    if any(rank.threads for rank in trace.ranks.values()) or any(call.via not in _MESSAGES for call in messages):
        return
    waits = _find_waits(trace, steps)
    for _ in range(_MOST_CYCLES):
        sorter, over = TopologicalSorter(waits), set[int]()
        with suppress(CycleError):  # it still returns the steps that no cycle blocks
            sorter.prepare()
        while ready := sorter.get_ready():
            over.update(ready)
            sorter.done(*ready)
        if not (left := waits.keys() - over):
            return
        ring, number = list[int](), min(left)
        while number not in ring:
            ring.append(number)
            number = min(waits[number].keys() - over)
        ring = ring[ring.index(number) :]
        yield _join_hops([waits[one][before] for one, before in pairwise([*ring, number])])
        for number in ring:  # as if nothing had been in their way
            del waits[number]


def _find_waits(trace: Trace, steps: Sequence[Step]) -> dict[int, dict[int, Hop]]:
    """Return by number of a step: the steps that have to complete before all of its calls begin, each with a reason."""
    behind = {key: calls for rank in trace.ranks.values() for key, calls in _find_order(rank).items()}
    number_of = {id_of(call): step.number for step in steps for call in step.calls.values()}
    waits: dict[int, dict[int, Hop]] = {step.number: {} for step in steps}
    for step in steps:
        for call in step.calls.values():
            for first in behind[id_of(call)]:
                before = number_of.get(id_of(first), step.number)
                if before != step.number:
                    waits[step.number].setdefault(before, Hop(first, call))
    return waits


def _join_hops(hops: Sequence[Hop]) -> tuple[Hop, ...]:
    """Return a ring with one hop of each rank: neighbors of one rank are joined, and the lowest rank comes first."""
    starts = [at for at, hop in enumerate(hops) if hop.first.rank != hops[at - 1].first.rank]
    start = min(starts, key=lambda at: hops[at].first.rank)
    of_ranks = groupby([*hops[start:], *hops[:start]], key=lambda hop: hop.first.rank)
    runs = [[*run] for _, run in of_ranks]
    return tuple(Hop(run[-1].first, run[0].then) for run in runs)


# -- messages that nobody received


def find_unreceived(trace: Trace, steps: Sequence[Step]) -> list[Call]:
    """Return sends of a passed run that have no receive."""
    alone = [step for step in steps if step.message and step.missing and len(step.calls) == 1]
    known = [call for step in alone for call in step.calls.values() if step.missing[0] in trace.ranks]
    return [call for call in known if call.operation.sends and trace.ranks[call.peer or 0].stopped]


# -- receives from any source


def find_other_matches(trace: Trace, steps: Sequence[Step]) -> Iterator[tuple[Call, Call, Call]]:
    """Yield receives from any source with the send of another message that breaks the program if it comes first.

    The third call is the receive that then lacks its message, or gets one that does not fit.
    """
    sent = {}
    for step in steps:
        ends = sorted(step.calls.values(), key=lambda call: call.operation.sends)  # the receive first
        if step.message and len(ends) > 1:
            sent[id_of(ends[0])] = ends[1]
    for rank in trace.ranks.values():
        received = [call for call in rank.calls if id_of(call) in sent]
        for number, call in enumerate(received):
            if call.from_any:
                after = _find_later(trace, steps, call)
                yield from islice(_list_other_matches(call, received[number:], sent, after), 1)


def _list_other_matches(
    call: Call, later: Sequence[Call], sent: Mapping[Id, Call], after: Mapping[int, int]
) -> Iterator[tuple[Call, Call, Call]]:
    """Try each message that comes later, is the first of its rank, and does not depend on this receive."""
    alike = [one for one in later if (one.group, one.tag) == (call.group, call.tag)]
    queues = group_pairs((sent[id_of(one)].rank, sent[id_of(one)]) for one in alike)
    for source, queue in queues.items():
        if source != sent[id_of(call)].rank and queue[0].index < after.get(source, queue[0].index + 1):
            broken = _replay_receives(alike, queues, source, sent)
            if broken is not None:
                yield call, queue[0], broken


def _replay_receives(
    receives: Sequence[Call], queues: Mapping[int, Sequence[Call]], first: int, sent: Mapping[Id, Call]
) -> Call | None:
    """Receive again, beginning with the message of rank `first`; return the first receive that fails."""
    left = {rank: deque(queue) for rank, queue in queues.items()}
    for number, call in enumerate(receives):
        wanted = first if not number else sent[id_of(call)].rank
        if not left[wanted] and call.from_any:
            wanted = next((rank for rank, queue in left.items() if queue), wanted)
        message = left[wanted].popleft() if left[wanted] else None
        if message is None or [(b.dtype, b.count) for b in message.inputs] != [(b.dtype, b.count) for b in call.own]:
            return call
    return None


def _find_later(trace: Trace, steps: Sequence[Step], call: Call) -> dict[int, int]:
    """Return by rank the index of its first call that can only begin after a receive has completed."""
    step_of = {id_of(one): step for step in steps for one in step.calls.values()}
    first, todo = {call.rank: call.index + 1}, [call.rank]
    while todo:
        rank = todo.pop()
        for one in trace.ranks[rank].calls:
            step = step_of.get(id_of(one))
            if one.index < first[rank] or step is None or one.operation.receives:
                continue
            for other in step.calls.values():
                if other.rank != rank and other.index + 1 < first.get(other.rank, other.index + 2):
                    first[other.rank] = other.index + 1
                    todo.append(other.rank)
    return first


# -- waits that only a time limit ended


def find_timed_out(trace: Trace, steps: Sequence[Step]) -> list[tuple[Call, Call]]:
    """Return calls of a passed run that ended because time was up, and what a rank that never came waited in then."""
    pairs = []
    for step in steps:
        for call in step.calls.values():
            over = call.end if call.end is not None and TIMED_OUT.search(call.error) else None
            absent = (trace.ranks[rank].calls for rank in step.missing if over is not None and rank in trace.ranks)
            waiting = (one for calls in absent for one in calls if one.begin < (over or 0.0) < (one.end or 0.0))
            pairs += [(call, one) for one in waiting][:1]
    return pairs


_MOST_CALLS = 200_000
"""Most calls of a run that is replayed; more take seconds."""


_MOST_HELD = 8
_LEAST_LIMIT_S = 30
"""Time limit of commands that show what fails: most of them hang."""
_KEYS_OF_SCRIPTS = {"name", "script", "timeout", "nodes", "nproc_per_node"}
"""Keys of scenarios that a command without the scenario has as well."""


class StrictOrderKind(Kind):
    """The kinds of findings of this feature."""

    REJECTED = "rejected", -1, "ends"
    HELD_BACK = "held_back", 2
    LUCK = "luck", 6


class RejectedCall(Finding):
    """A call that NCCL rejects, or that does something else there."""

    kind: Kind = StrictOrderKind.REJECTED
    rule: str

    def render(self) -> Words:
        """Name the ranks and lines, NCCL's reason, and its source."""
        row = REJECTED[self.rule]
        who = name_ranks(self.ranks or self.others)
        return (
            f"{who} called what NCCL rejects{render_lines(self.lines)}: {row.about}",
            f"NCCL: {row.nccl} ({row.source}).",
        )


class HeldBack(Finding):
    """Calls of a strict run that had not begun when it was over, each with the earlier call that they waited for."""

    kind: Kind = StrictOrderKind.HELD_BACK
    held: tuple[CallFacts, ...]
    behind: tuple[CallFacts, ...]
    """The earlier call of the same rank, for each."""

    def render(self) -> Words:
        """Say which calls waited behind which."""
        pairs = zip(self.held, self.behind, strict=True)
        each = join_words(
            f"rank {one.rank}'s {describe_wait(one)} behind its {describe_wait(two)}" for one, two in pairs
        )
        messages = all(call.name in ("send", "recv") for call in (*self.held, *self.behind))
        advice = "For messages both ways between two ranks, use batch_isend_irecv." if messages else ""
        return f"calls that other ranks may need had not begun: {each}", "On gloo, they begin at once.", advice


class Luck(Finding):
    """What a run passed by luck, and the command that makes it fail now."""

    kind: Kind = StrictOrderKind.LUCK
    how: Literal["order", "unreceived", "any_source", "timeout"]
    calls: tuple[CallFacts, ...]
    """`order`: two calls of each rank, in its order; `any_source`: the receive, the other send, and what breaks."""
    command: str

    def render(self) -> Words:
        """Say what may fail, at which lines, and how to see it fail."""
        first, *others = self.calls
        if self.how == "order":
            pairs = zip(self.calls[::2], self.calls[1::2], strict=True)
            each = join_words(
                f"rank {one.rank} calls {describe_wait(one)} before {describe_wait(other)}" for one, other in pairs
            )
            head = f"{name_ranks(self.others)} may wait for each other: {each}"
            return head, "Gloo runs these calls at the same time, NCCL may not.", self._fails()
        if self.how == "unreceived":
            return f"no rank received what rank {first.rank} sent: {describe_wait(first)}", self._fails()
        if self.how == "timeout":
            head = f"rank {first.rank} waited in {describe_wait(first)} until its time was up"
            then = f"only that ended the wait of rank {others[0].rank} in {describe_wait(others[0])}"
            return f"{head}; {then}", "With another time limit, the run may hang.", self._fails()
        other, broken = others
        head = f"rank {first.rank} received from any rank at {first.source}; what rank {other.rank} sent"
        rest = f"{render_lines([other.source])} may come first, so that {describe_wait(broken)} fails"
        return f"{head}{rest}", self._fails()

    def _fails(self) -> str:
        return f"`{self.command}` fails there."


class StrictOrderReader:
    """Reads the lines of rejected calls, and of calls that wait for earlier ones, from the trace of a rank."""

    def __init__(self, reader: RankReader) -> None:
        self._rank, extra = reader.rank, reader.result.extra
        self._rejections: list[tuple[str, tuple[int, ...], tuple[str, ...]]] = extra.setdefault("rejected", [])
        self._held: dict[int, tuple[CallFacts, CallFacts]] = extra.setdefault("held", {})
        reader.actions |= {"rejected": self._read_rejection, "held": self._read_held}

    def _read_rejection(self, line: Mapping[str, Any]) -> None:
        rule, lines = str(line["rule"]), tuple(str(one) for one in line["lines"])
        if rule in REJECTED:
            self._rejections.append((rule, tuple(parse_count(rank) for rank in line["ranks"]), lines))

    def _read_held(self, line: Mapping[str, Any]) -> None:
        number = parse_count(line["n"])
        if line.get("e"):
            self._held.pop(number, None)
            return
        call = CallFacts(rank=self._rank, name=str(line["op"]), source=str(line["at"]))
        self._held[number] = call, CallFacts(rank=self._rank, name=str(line["behind"]), source=str(line["line"]))


def explain_strict_order(run: Explained) -> list[Finding]:
    """Return rejected calls of a strict run, or what a run passed by luck."""
    return [*_find_rejected(run.evidence), *(_find_luck if run.ended_well else _find_held)(run.evidence)]


def _find_held(evidence: Evidence) -> Iterator[Finding]:
    if evidence.facts.timed_out or evidence.facts.interrupted:
        pairs = [pair for rank in evidence.trace.ranks.values() for pair in rank.extra.get("held", {}).values()]
        if pairs := pairs[:_MOST_HELD]:
            held, behind = (tuple(calls) for calls in zip(*pairs, strict=True))
            lines = tuple(call.source for pair in pairs for call in pair)
            yield HeldBack(held=held, behind=behind, others=tuple({call.rank: 0 for call in held}), lines=lines)


def _find_rejected(evidence: Evidence) -> Iterator[Finding]:
    rejections = [
        ((rule, lines if ranks else ()), (ranks or (rank.rank,), lines))
        for rank in evidence.trace.ranks.values()
        for rule, ranks, lines in rank.extra.get("rejected", ())
    ]
    for (rule, of_message), alike in group_pairs(rejections).items():
        everybody = tuple(sorted({rank for ranks, _ in alike for rank in ranks}))
        lines = tuple(line for _, some in alike for line in some)
        blamed, others = ((), everybody) if of_message else (everybody, ())  # a message has two ends
        yield RejectedCall(rule=rule, lines=lines, ranks=blamed, others=others)


def _find_luck(evidence: Evidence) -> Iterator[Finding]:
    trace = evidence.trace
    if not trace.recorded or evidence.dumped or sum(len(one.calls) for one in trace.ranks.values()) > _MOST_CALLS:
        return
    steps, reported = evidence.steps, set[tuple[str, ...]]()

    def facts_of(call: Call) -> CallFacts:
        step = evidence.step(call)
        assert step is not None  # `luck` returns only calls with a step
        return call_facts(call, step, step.group.title if call.seq is None and step.group.label != "default" else "")

    def make(how: Any, *calls: Call) -> Iterator[Finding]:
        lines, ranks = tuple(call.source for call in calls), tuple(sorted({call.rank for call in calls}))
        if lines not in reported:
            reported.add(lines)
            facts = tuple(map(facts_of, calls))
            command = _strict_command(evidence.record)
            yield Luck(how=how, calls=facts, command=command, others=ranks, lines=lines, step=steps[0].title)

    for cycle in find_cycles(trace, steps):
        yield from make("order", *(call for hop in cycle for call in hop))
    for call in find_unreceived(trace, steps):
        yield from make("unreceived", call)
    for calls in find_other_matches(trace, steps):
        yield from make("any_source", *calls)
    for call, other in find_timed_out(trace, steps):
        yield from make("timeout", call, other)


def _strict_command(record: Record) -> str:
    """Return the command that repeats a run strictly; a script that needs no other keys can have changed."""
    plan, duration_s = record.plan(), record.result().duration_s or 0.0
    keys = set(re.findall(r"^[a-z_]+(?=:)", record.scenario_text(), re.MULTILINE))
    path = record.path / SCENARIO if keys - _KEYS_OF_SCRIPTS else Path(plan.script)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    sizes = {"nodes": plan.nnodes, "nproc-per-node": (plan.nproc_per_node or 1) - 1 and plan.nproc_per_node}
    options = ["--strict-order", *(f"--{name} {size}" for name, size in sizes.items() if size)]
    limit_s = max(_LEAST_LIMIT_S, math.ceil(10 * duration_s))
    return " ".join(["lab run", *options, f"--timeout {limit_s}s", shlex.quote(str(shown))])
