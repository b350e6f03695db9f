"""Whether the ranks called what `expect: calls:` states, in that order: compares it with their traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.errors import ScenarioError
from lab.record.read import Record
from lab.record.result import Expectation
from lab.spec.calls import CallPattern, parse_calls
from lab.spec.expressions import RankVariables
from lab.spec.scenario import Expect
from lab.trace.model import Call, Group, RankTrace
from lab.trace.notation import Departure, first_departure, render_call
from lab.trace.read import read_trace
from lab.words import plural

NOT_RECORDED = "calls were not recorded: tracing was off; run it without --no-trace and trace: false"


def check_calls(expect: Expect, record: Record, variables: Mapping[int, RankVariables]) -> Iterator[Expectation]:
    """One expectation for each rank of which calls are stated: as stated, or the first place where they differ."""
    stated = expect.calls
    if stated is None or isinstance(stated, str):
        return
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
