"""Findings on strict order: calls that NCCL rejects, and what passed by luck, for `lab explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from lab.diagnosis.ends import call_facts
from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import CallFacts, Finding, Kind, Words
from lab.diagnosis.wording import describe_wait, render_lines
from lab.features.strict_order import luck
from lab.features.strict_order.on_node.rules import REJECTED
from lab.grouping import group_pairs
from lab.trace.model import Call
from lab.trace.read import RankReader, parse_count
from lab.words import join_words, name_ranks

_MOST_CALLS = 200_000
"""Most calls of a run that is replayed; more take seconds."""


_MOST_HELD = 8


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
            return f"{head}; {then}", "With another time limit, the run may hang."
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
        behind = CallFacts(rank=self._rank, name=str(line["behind"]), source=str(line["line"]))
        self._held[number] = call, behind


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
    script = Path(evidence.record.plan().script)
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    command = f"lab run --strict-order {shown}"
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
            yield Luck(how=how, calls=facts, command=command, others=ranks, lines=lines, step=steps[0].title)

    for cycle in luck.find_cycles(trace, steps):
        yield from make("order", *(call for hop in cycle for call in hop))
    for call in luck.find_unreceived(trace, steps):
        yield from make("unreceived", call)
    for match in luck.find_other_matches(trace, steps):
        yield from make("any_source", match.receive, match.other, match.broken)
    for call, other in luck.find_timed_out(trace, steps):
        yield from make("timeout", call, other)
