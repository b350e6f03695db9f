"""Whether the ranks called what `expect: calls:` states, in that order: compares it with their traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.errors import ScenarioError
from lab.features.calls.notation import bucket_of, destination_of, labels_of, render_call, source_of, split_of
from lab.features.calls.pattern import ANYTHING, CallPattern, parse_calls
from lab.record.read import Record
from lab.record.result import Expectation
from lab.spec.expressions import RankVariables
from lab.trace.model import Buffer, Call, Group, RankTrace
from lab.trace.read import read_trace
from lab.words import plural

NOT_RECORDED = "calls were not recorded: tracing was off; run it without --no-trace and trace: false"


def check_calls(
    stated: Sequence[str] | Mapping[int, Sequence[str]], record: Record, variables: Mapping[int, RankVariables]
) -> Iterator[Expectation]:
    """One expectation for each rank of which calls are stated: as stated, or the first place where they differ."""
    trace = read_trace(record)
    by_rank = stated if isinstance(stated, Mapping) else dict.fromkeys(variables, stated)
    for rank, items in sorted(by_rank.items()):
        of_rank = trace.ranks.get(rank)
        try:
            if of_rank is None or not of_rank.recorded:
                raise ScenarioError("no trace of this rank is on record" if trace.recorded else NOT_RECORDED)
            if of_rank.cut:
                raise ScenarioError(f"recording ended early: {of_rank.cut}")
            patterns = [pattern for item in items for pattern in parse_calls(item, variables[rank])]
        except ScenarioError as error:  # the run is over: what cannot be compared is not met, and says why
            yield Expectation(what="calls", rank=rank, expected="; ".join(items), got=f"({error.message})", met=False)
            continue
        yield _compare(patterns, of_rank, trace.groups)


def _compare(patterns: list[CallPattern], rank: RankTrace, groups: Mapping[str, Group]) -> Expectation:
    departure = first_departure(patterns, rank.calls, groups)
    expected, got = "as stated", f"as stated: {plural(len(rank.calls), 'call')}"
    if departure is not None:
        expected = "no further call" if departure.expected is None else departure.expected.text
        got = _got(departure, rank, groups)
    return Expectation(what="calls", rank=rank.rank, expected=expected, got=got, met=departure is None)


def _got(departure: Departure, rank: RankTrace, groups: Mapping[str, Group]) -> str:
    if departure.got is not None:
        phase = departure.expected is not None and departure.expected.phase is not None
        return _shown(departure.got, groups, phase=phase)
    more = "nothing like it" if departure.after_gap else "nothing more"
    return f"{more}, after {_shown(rank.calls[-1], groups)}" if rank.calls else "no call at all"


def _shown(call: Call, groups: Mapping[str, Group], *, phase: bool = False) -> str:
    where = f" at {call.source}" if call.source else ""
    return f"call {call.index}: {render_call(call, groups, phase=phase)}{where}"


def fits(call: Call, pattern: CallPattern, groups: Mapping[str, Group]) -> bool:
    """Whether a recorded call is what a scenario states; what is not stated is not compared."""
    return (
        call.op == pattern.op
        and pattern.reduce_op in (None, call.reduce_op)
        and pattern.source in (None, source_of(call))
        and pattern.destination in (None, destination_of(call))
        and pattern.from_any in (None, call.from_any)
        and pattern.tag in (None, call.tag)
        and pattern.split in (None, split_of(call))
        and pattern.hands_out in (None, call.hands_out)
        and pattern.bucket in (None, bucket_of(call))
        and pattern.module in (None, call.module)
        and pattern.group in (None, *labels_of(call, groups), call.group)
        and pattern.phase in (None, call.phase)
        and _fit_tensors(call.own, pattern)
    )


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Where a rank left what was stated."""

    expected: CallPattern | None
    """The call that was due; None where there were no more."""
    got: Call | None
    """What came instead; None where the rank called nothing more."""
    after_gap: bool = False
    """Whether `...` stood before `expected`: it was waited for until the end, and `got` is None."""


def first_departure(
    stated: Sequence[CallPattern], calls: Sequence[Call], groups: Mapping[str, Group]
) -> Departure | None:
    """Where calls differ from what was stated; None if they do not.

    Where `...` leaves several ways to read the calls, the one that gets furthest counts.
    """
    places = _open(stated, {0})
    furthest, at = max(places), 0
    for number, call in enumerate(calls):
        after = {place for place in places if place < len(stated) and stated[place] is ANYTHING}
        for place in places:
            pattern = stated[place] if place < len(stated) else ANYTHING
            if pattern is not ANYTHING and fits(call, pattern, groups):
                after.add(place + 1)
        places = _open(stated, after)
        if not places:
            break
        if max(places) > furthest:
            furthest, at = max(places), number + 1
    if len(stated) in places:
        return None
    expected = stated[furthest] if furthest < len(stated) else None
    if furthest > 0 and stated[furthest - 1] is ANYTHING:
        return Departure(expected=expected, got=None, after_gap=True)
    return Departure(expected=expected, got=calls[at] if at < len(calls) else None)


def _open(stated: Sequence[CallPattern], places: set[int]) -> set[int]:
    """The places with those behind each `...`, which may stand for nothing."""
    found = set(places)
    for place in sorted(places):
        while place < len(stated) and stated[place] is ANYTHING:
            place += 1
            found.add(place)
    return found


def _fit_tensors(tensors: tuple[Buffer, ...], pattern: CallPattern) -> bool:
    if pattern.tensors is None:
        return True
    return len(tensors) == len(pattern.tensors) and all(
        tensor.dtype == dtype and shape in (None, tensor.shape)
        for tensor, (dtype, shape) in zip(tensors, pattern.tensors, strict=True)
    )
