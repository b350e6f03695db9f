"""Find steps in which ranks did not do the same, and calls that ranks skipped or repeated.

The calls of a training loop repeat. With two ranks there is no majority. Then the rank whose call is not the next call
of its loop is out of step. At the end of the loop's body, either rank may legally have left the loop. There only a call
from the middle of the body shows that its rank has not left the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import NamedTuple

from lab.diagnosis import finding as f
from lab.diagnosis.ends import lines_of, of_step
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.wording import describe_wait, render_lines, render_repeats, render_unexpected
from lab.features.values.expected import Clash, Misfit, describe_tensors, find_clashes
from lab.features.values.findings import check_results
from lab.trace.model import Call
from lab.trace.read import RankReader
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, join_words, name_ranks


class Mismatch(f.Finding):
    """Ranks that called different operations where all had to call the same one."""

    kind: f.Kind = f.FindingKind.MISMATCH
    number: int | None
    """Number of the call in its group."""
    group: str = ""
    """Empty for the default group."""
    deviating_sides: tuple[f.Side, ...] = field(default=(), metadata={"key": "odd_sides"})
    """What the deviating ranks called."""
    sides: tuple[f.Side, ...] = ()
    """What the others called, or all ranks without a majority."""
    by_rhythm: bool = False
    """Whether the deviating rank is known from its own loop, not from a majority."""
    again: int = 0
    """In how many other steps the same happened."""
    ahead: tuple[int, ...] = ()
    """Ranks that may be one call ahead of the others."""
    skipped: str = ""
    """The line of the call that they did not make then."""

    def render(self) -> f.Words:
        """Say who called what."""
        number = f"call #{self.number}" + (f" of {self.group}" if self.group else "")
        deviating, others = _by_side(self.deviating_sides, "called"), _by_side(self.sides, "called")
        head, why = f"{join_words(deviating)} where {join_words(others)} ({number})", ""
        if not deviating:
            head = f"in {number} ranks called different operations: {'; '.join(others)}"
            why = "There is no majority to say which call is right."
        elif self.by_rhythm:
            why = f"Until then both repeated the same calls; {name_ranks(self.ranks)} deviated from them."
        head += _render_skipped(self.ahead, self.skipped)
        return head, why, render_repeats(self.again)


class Unequal(f.Finding):
    """Ranks that called the same operation with arguments that do not fit together."""

    sides: tuple[f.Side, ...]
    """What each side passed; the majority first, if there is one."""
    misfits: tuple[Misfit, ...] = ()
    at: tuple[str, ...] = ()
    unexpected: f.UnexpectedElement | None = field(default=None, metadata={"key": "wrong"})
    """The first unexpected value."""
    affected_ranks: tuple[int, ...] = field(default=(), metadata={"key": "wrong_ranks"})
    again: int = 0
    """In how many other steps the same happened."""
    ahead: tuple[int, ...] = ()
    """Ranks that may be one call ahead of the others."""
    skipped: str = ""
    """The line of the call that they did not make then."""

    def render(self) -> f.Words:
        """Say who passed what, and its effect."""
        verb = {"root": "named", "reduce_op": "reduced by"}.get(self.kind.value, "passed")
        sides, lines = _by_side(self.sides, verb), join_words(self.at)
        head = f"{join_words(sides[1:])}, but {sides[0]}" if self.ranks else f"ranks do not agree: {'; '.join(sides)}"
        head = f"in {self.step} {_misfits(self.misfits) or head}{f' ({lines})' if lines else ''}"
        head += _render_skipped(self.ahead, self.skipped)
        unexpected = ""
        if self.unexpected is not None:
            who = capitalize_first(name_ranks(self.affected_ranks))
            unexpected = f"{who} got wrong values from it: {render_unexpected(self.unexpected)}."
        return head, unexpected, render_repeats(self.again)


class Slipped(f.Finding):
    """Ranks that skipped calls of the others, or made extra ones."""

    kind: f.Kind = f.FindingKind.SLIPPED
    calls: int
    """How many calls they skipped; a negative number counts extra calls."""
    call: f.CallFacts
    """The first of them."""
    caller: str = ""
    """The line that called the function with this call."""
    turn: int = 0
    """The round of their loop; 0 if the line occurs only once."""
    met_off: str = ""
    """The first step in which they met the others with a wrong call."""

    def render(self) -> f.Words:
        """Name the ranks that skipped or repeated calls."""
        count, common = abs(self.calls), name_ranks(self.others)
        number = "one call" if count == 1 else format_count(count, "call")
        it, are = ("they", "are") if len(self.ranks) > 1 else ("it", "is")
        rest = {1: "", 2: " and the call after it"}.get(count, f" and the {count - 1} calls after it")
        calls = f"{self.call.name}{_render_lines_and_callers([self.call.source], [self.caller])}{rest}"
        did, where = f"skipped {calls}", "ahead of"
        if self.calls < 0:
            did, where = f"called {calls} one time more than {common}", "behind"
        turn = f" in round {self.turn}" if self.turn else ""
        head = f"{name_ranks(self.ranks)} {are} {number} {where} {common}:{turn} {it} {did}"
        shifted = f"From {self.met_off} on, each of their calls met the wrong call of the others, {number} away."
        return head, shifted if self.met_off else ""


class Raced(f.Finding):
    """A group whose collectives two threads of each rank called at the same time, so that they have no order."""

    kind: f.Kind = f.FindingKind.MISMATCH
    calls: tuple[f.CallFacts, ...]
    """Two calls of one rank that overlapped."""

    def render(self) -> f.Words:
        """Name both calls."""
        calls = f"{join_words(map(describe_wait, self.calls))} overlapped on rank {self.calls[0].rank}"
        head = f"two threads of each rank called collectives of one group at the same time: {calls}"
        return head, "Nothing fixes their order, which has to be the same on all ranks. Give each thread its own group."


class Interrupted(f.Finding):
    """A rank that made another call than the others because of an exception, such as in a `finally`."""

    kind: f.Kind = f.FindingKind.FAILED
    error: str
    raised_at: str
    call: f.CallFacts

    def render(self) -> f.Words:
        """Name the exception, and the call that the rank made while it handled it."""
        raised, call = render_lines([self.raised_at]), self.call
        return f"rank {call.rank} raised {self.error}{raised}, and called {call.name}{render_lines([call.source])} then"


_HANDLED = "handled_errors"


def read_handled_errors(reader: RankReader) -> None:
    """Also read the exceptions that a script handled when it made calls."""
    errors = reader.result.extra.setdefault(_HANDLED, [])
    reader.actions["handled"] = lambda line: errors.append(
        (reader.seconds(line), str(line.get("error", "")), str(line.get("at", "")))
    )


def _interrupted(finding: f.Finding, steps: Mapping[str, Step], evidence: Evidence) -> Iterator[f.Finding]:
    """Yield which exception made one rank call something else, if no other rank is named, and no other handled one."""
    step = steps.get(finding.step) if finding.kind is f.FindingKind.MISMATCH else None
    handled = list[tuple[Call, str, str]]()
    for rank, call in step.calls.items() if step is not None else ():
        before = max((one.begin for one in evidence.calls(rank) if one.index < call.index), default=0.0)
        errors = evidence.trace.ranks[rank].extra.get(_HANDLED, ())
        handled += [(call, error, at) for time, error, at in errors if before < time <= call.begin][-1:]
    if step is not None and len(handled) == 1 and {*finding.ranks} <= {handled[0][0].rank}:
        [(call, error, at)], common = handled, of_step(step, [handled[0][0].rank])
        facts = f.CallFacts(rank=call.rank, name=call.op, source=call.source)
        yield Interrupted(error=error, raised_at=at, call=facts, **common | {"lines": (at, *common["lines"])})


def find_disagreements(evidence: Evidence) -> list[f.Finding]:
    """Return what ranks called differently, each kind, rank, and line once; steps that never ended come first."""
    by_location: dict[tuple[object, ...], list[tuple[Step, Mismatch | Unequal]]] = {}
    if races := _find_races(evidence):  # everything else is a consequence
        return races
    for clash in find_clashes(evidence.steps):
        finding = (_mismatch if clash.kind == f.FindingKind.MISMATCH.value else _unequal)(clash, evidence)
        by_location.setdefault((finding.kind, finding.ranks, finding.lines), []).append((clash.step, finding))
    groups = sorted(by_location.values(), key=lambda group: all(step.state == "completed" for step, _ in group))
    clashing = [_waiting(*group[0], len(group) - 1, evidence) for group in groups]
    steps = {step.title: step for step in evidence.steps}
    clashing = [one for finding in clashing for one in (*_interrupted(finding, steps, evidence), finding)]
    skipped, turns = find_offset_ranks(evidence), {step.title: step.number for step in evidence.steps}
    first = min((turns[finding.step] for finding in clashing if finding.kind is f.FindingKind.MISMATCH), default=0)
    before = [finding for finding in skipped if turns.get(finding.step, first) < first]
    return [*before, *clashing, *(finding for finding in skipped if finding not in before)]


def _find_races(evidence: Evidence) -> list[f.Finding]:
    """Return the first step that ended badly, or that mixed lines, while another thread was in one of the same group.

    The calls of NCCL return before they end.
    """
    traces = evidence.trace.ranks
    for step in sorted(evidence.steps, key=lambda step: step.state == "completed"):
        threads = all(rank in traces and traces[rank].threads for rank in step.group.ranks)
        mixed = step.state != "completed" or len({call.path for call in step.calls.values()}) > 1
        blocking = (call for call in step.calls.values() if threads and mixed and call.seq and not call.has_handle)
        for call in blocking if "nccl" not in step.group.backend else ():
            for other in evidence.calls(call.rank):
                alike = other.group == call.group and other.path != call.path and other.seq and not other.has_handle
                if alike and other.begin < (call.end or inf) and call.begin < (other.end or inf):
                    both = ((one, f"{one.op} #{one.seq}") for one in (other, call))
                    calls = tuple(f.CallFacts(rank=one.rank, name=name, source=one.source) for one, name in both)
                    return [Raced(calls=calls, **of_step(step))]
    return []


def _waiting(step: Step, finding: Mismatch | Unequal, again: int, evidence: Evidence) -> f.Finding:
    """Add to a finding how often it occurred, and how long ranks had waited in its step when the run was over."""
    stopped = {rank for rank, facts in evidence.ranks.items() if facts.stopped}
    since = [call.begin for call in step.calls.values() if call.state == "unfinished" and call.rank in stopped]
    took = round(max(0.0, evidence.end_s - min(since)), 6) if since else None
    return replace(finding, again=again, seconds=took)


def _mismatch(clash: Clash, evidence: Evidence) -> Mismatch:
    """Return a finding on ranks that called different operations."""
    step = clash.step
    deviating = clash.deviating_ranks or (left_loop(step, evidence) if len(step.calls) == _PAIR else ())
    common = of_step(step, deviating)
    others = common["others"] if deviating else [rank for _, ranks in clash.sides for rank in ranks]
    called = _with_lines(step, [*_called(step, deviating), *_called(step, others)])
    sides = len(_called(step, deviating))
    ahead, skipped = _ahead(clash, [*called[sides:], *called[:sides]], evidence)
    known = {call.path for rank in step.calls.keys() - {*ahead} for call in evidence.calls(rank)}
    if not all(step.calls[rank].path in known for rank in ahead):  # the others never make that call
        ahead, skipped = (), ""
    return Mismatch(
        number=step.seq,
        group="" if step.group.label == "default" else step.group.title,
        deviating_sides=called[:sides],
        sides=called[sides:],
        by_rhythm=bool(deviating) and not clash.deviating_ranks,
        ahead=ahead,
        skipped=skipped,
        **common | {"lines": _lines_and_callers(called)},
    )


def left_loop(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Return which of the two ranks of a group did not make the next call of the loop that both were in."""
    if len(step.group.ranks) != _PAIR:
        return ()
    ranks, name = sorted(step.group.ranks), step.group.name
    who = out_of_step(*(list_beats(evidence.calls(rank), name) for rank in ranks))
    return () if who is None else (ranks[who],)


def _called(step: Step, ranks: Sequence[int]) -> tuple[f.Side, ...]:
    """Group ranks by what they called."""
    return f.sides_of({rank: step.calls[rank].op for rank in ranks})


def _with_lines(step: Step, sides: Iterable[f.Side]) -> tuple[f.Side, ...]:
    """Add to each side the lines of its calls, and the callers of these lines if the sides have different ones."""
    calls = [(side, [step.calls[rank] for rank in side.ranks]) for side in sides]
    callers = [f.unique_lines(call.caller for call in of_side) for _, of_side in calls]
    shown = callers if len({*callers}) > 1 else [()] * len(callers)
    return tuple(
        replace(side, lines=lines_of(of_side), callers=by) for (side, of_side), by in zip(calls, shown, strict=True)
    )


def _lines_and_callers(sides: Iterable[f.Side]) -> tuple[str, ...]:
    return tuple(line for side in sides for line in (*side.lines, *side.callers))


def _unequal(clash: Clash, evidence: Evidence) -> Unequal:
    """Return a finding on arguments that do not fit together."""
    step, deviating = clash.step, clash.deviating_ranks or _changed(clash, evidence)
    elements = check_results(step) if clash.comparable else []
    passed = [f.Side(ranks=tuple(ranks), what=what) for what, ranks in clash.sides]
    sides = _with_lines(step, sorted(passed, key=lambda side: not {*side.ranks}.isdisjoint(deviating)))
    one_line = clash.misfits or len({(side.lines, side.callers) for side in sides}) == 1
    ahead, skipped = ((), "") if one_line else _ahead(clash, sides, evidence)
    return Unequal(
        kind=f.FindingKind(clash.kind),
        sides=tuple(replace(side, lines=(), callers=()) for side in sides) if one_line else sides,
        misfits=clash.misfits,
        at=lines_of(step.calls[rank] for rank in deviating or sorted(step.calls)) if one_line else (),
        unexpected=elements[0] if elements else None,
        affected_ranks=tuple(element.rank for element in elements),
        ahead=ahead,
        skipped=skipped,
        **of_step(step, deviating) | {"lines": _lines_and_callers(reversed(sides))},
    )


def _ahead(clash: Clash, sides: Sequence[f.Side], evidence: Evidence) -> tuple[tuple[int, ...], str]:
    """Return ranks that may have skipped the call of the others, and its line; nobody if nothing shows who did.

    They are the minority, or the one of two that left its loop, or those at the later of two lines new to all ranks.
    """
    positions = [side.lines if sides[0].lines != sides[-1].lines else side.callers for side in sides]
    if len(sides) != _PAIR or clash.step.state == "completed" or any(len(lines) != 1 for lines in positions):
        return (), ""
    at = [lines[0] for lines in positions]
    calls = clash.step.calls.values()
    before = {one.source for call in calls for one in evidence.calls(call.rank) if one.index < call.index}
    (file, _, line), (other_file, _, other_line) = (one.rpartition(":") for one in at)
    left = clash.deviating_ranks or left_loop(clash.step, evidence)
    if not left and (file != other_file or before & {*at}):
        return (), ""
    ahead = int({*left} <= {*sides[1].ranks} if left else int(other_line) > int(line))
    extra = at[1 - ahead] in before and at[ahead] not in before  # the others go on in their loop
    return ((), "") if extra else (sides[ahead].ranks, at[1 - ahead])


_FEWEST_ROUNDS = 2
"""Fewest earlier calls of a line that show what it always passes."""


def _changed(clash: Clash, evidence: Evidence) -> tuple[int, ...]:
    """Return the ranks that passed something else than ever before at their line, if all others passed the same."""
    read: dict[str, Callable[[Call], object]] = {"root": lambda c: c.root, "reduce_op": lambda c: c.reduce_op}
    passed, deviating = read.get(clash.kind, describe_tensors), list[int]()
    for rank, call in clash.step.calls.items():
        wanted = (call.op, call.path, call.group, call.peer)
        earlier = (one for one in evidence.calls(rank) if one.index < call.index)
        before = [passed(one) for one in earlier if (one.op, one.path, one.group, one.peer) == wanted]
        if clash.misfits or len(before) < _FEWEST_ROUNDS or len({*before}) > 1:
            return ()
        deviating += [rank] if before[0] != passed(call) else []
    return tuple(deviating) if len(deviating) < len(clash.step.calls) else ()


# -- the rhythm of a rank: the loop that its calls repeat

_PAIR = 2
"""Ranks without a majority."""
_LONGEST = 64
"""Calls of the longest loop body to look for."""
_TURNS = 2
"""How often a loop body must repeat to count."""

Beat = tuple[str, str]
"""Operation, and where the script made the call."""


def list_beats(calls: Sequence[Call], group: str) -> list[Beat]:
    """Return the collectives of a rank in a group, in order."""
    return [(call.op, call.path) for call in calls if call.group == group and call.seq is not None]


def out_of_step(one: Sequence[Beat], other: Sequence[Beat]) -> int | None:
    """Return 0 if the first sequence left the common rhythm, 1 if the second did, None if unknown."""
    common = _parting(one, other, min(len(one), len(other)))
    body, position = _body(one[:common])
    if not body:
        return None
    here = [sequence[common] if common < len(sequence) else None for sequence in (one, other)]
    expected = body[position]
    if (here[0] == expected) == (here[1] == expected):
        return None
    leaving = 0 if here[1] == expected else 1
    return leaving if position or here[leaving] in body else None


def _parting(one: Sequence[Beat], other: Sequence[Beat], default: int) -> int:
    """Return the first position where two sequences differ."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), default)


def find_due_call(done: Sequence[Beat], made: Beat | None = None) -> int | None:
    """Return the position of an earlier call that the loop would make next.

    Return None if the calls end with a whole loop body, unless the call that was made is a later one of the body: then
    the rank did not leave the loop.
    """
    body, position = _body(done)
    return len(done) - len(body) if position or made in body[1:] else None


def find_skipped_calls(done: Sequence[Beat]) -> list[int]:
    """Return the positions of calls that the next round skipped, in the middle of a loop that then continued."""
    positions = []
    # period -> number of consecutive calls that equal the call one period before
    runs = dict.fromkeys(range(1, _LONGEST + 1), 0)
    for n, beat in enumerate(done):
        believed = [period for period, run in runs.items() if run + period >= _TURNS * period]
        period = max(believed, key=lambda period: runs[period] + period, default=0)
        if period and runs[period] % period and beat != done[n - period]:
            body = done[n - period : n]
            if [*body, *body][1:3] == [*done[n : n + 2]]:
                positions.append(n - period)
        runs = {period: run + 1 if n >= period and done[n - period] == beat else 0 for period, run in runs.items()}
    return positions


def _body(done: Sequence[Beat]) -> tuple[Sequence[Beat], int]:
    """Return the loop body that these calls end in, and the position in it; empty if nothing repeats."""
    length, period = 0, 0
    for candidate in range(1, min(_LONGEST, len(done) // _TURNS) + 1):
        tail = candidate
        while tail < len(done) and done[-tail - 1] == done[-tail - 1 + candidate]:
            tail += 1
        if tail > length and tail >= _TURNS * candidate:
            length, period = tail, candidate
    start = len(done) - length
    return done[start : start + period], length % period if period else 0


# -- ranks that skipped a call of their group, or made an extra one: after it their calls meet the wrong ones

_MOST_CALLS = 8
"""Largest number of consecutive skipped calls to look for."""
_LEAST_MATCHED = 2
"""This many calls after the skipped ones must match those of the others."""


class _Offset(NamedTuple):
    """Where one sequence of calls departed from another."""

    at: int
    """Position in both."""
    calls: int
    """How many calls it skipped; a negative number counts extra calls."""


def find_offset_ranks(evidence: Evidence) -> list[f.Finding]:
    """Return ranks that skipped calls of the others or made extra ones, in each group with a step that never ended.

    If no group shows it, compare all calls: a step may hang in another group than the one with the skipped call.
    """
    collectives = {step.group.name: step.group for step in evidence.steps if not step.message}
    hung = {step.group.name for step in evidence.steps if not step.message and step.state != "completed"}
    findings = []
    for name in (name for name in collectives if name in hung):
        calls = {one: [c for c in evidence.calls(one) if c.group == name and c.seq] for one in collectives[name].ranks}
        findings += _find_offsets(evidence, calls, {one: list_beats(ours, name) for one, ours in calls.items() if ours})
    if findings or evidence.trace.is_tail or all(step.state == "completed" for step in evidence.steps):
        return findings
    # A rank that left the loop that it shared with all others, at least two.
    calls = {rank: ours for rank in sorted(evidence.ranks) if (ours := evidence.calls(rank))}
    done = {rank: [(call.op, call.path) for call in ours] for rank, ours in calls.items()}
    return _find_offsets(evidence, calls, done, anywhere=True) if len(done) > _PAIR else []


def _find_offsets(
    evidence: Evidence, calls: Mapping[int, list[Call]], done: Mapping[int, list[Beat]], *, anywhere: bool = False
) -> list[f.Finding]:
    common = _in_step(done)
    deviating = [rank for rank in done if rank not in common]
    if not common or not deviating or (anywhere and len(deviating) != 1):
        return []
    longest = max(common, key=lambda rank: len(done[rank]))
    offsets = {rank: offset for rank in deviating if (offset := _find_offset(done[rank], done[longest])) is not None}
    alike = f.group_ranks(
        {one: (offset, done[longest if offset.calls > 0 else one][offset.at]) for one, offset in offsets.items()}
    )
    return [
        _slipped(evidence, offset, ranks, common, calls[longest], calls[ranks[0]], body)
        for (offset, _), ranks in alike.items()
        if (body := _body(done[longest][: offset.at])[0] if anywhere else ()) or not anywhere
    ]


def _in_step(done: Mapping[int, list[Beat]]) -> list[int]:
    """Return the ranks that made the same calls, as far as each came.

    They are more than half, or the one of two that kept its rhythm.
    """
    if len(done) == _PAIR:
        one, other = done
        return {0: [other], 1: [one], None: []}[out_of_step(done[one], done[other])]
    for rank in sorted(done, key=lambda rank: -len(done[rank])):
        same = [other for other in done if done[other] == done[rank][: len(done[other])]]
        if 2 * len(same) > len(done):
            return sorted(same)
    return []


def _find_offset(mine: Sequence[Beat], theirs: Sequence[Beat]) -> _Offset | None:
    """Return where two sequences part, if one continues there like the other does a few calls later."""
    at = _parting(mine, theirs, -1)
    for calls in range(1, _MOST_CALLS + 1 if at >= 0 else 0):
        for sign, behind, ahead in ((1, theirs, mine), (-1, mine, theirs)):
            pairs = list(zip(ahead[at:], behind[at + calls :], strict=False))
            if len(pairs) >= _LEAST_MATCHED and all(a == b for a, b in pairs):
                return _Offset(at, sign * calls)
    return None


def _slipped(
    evidence: Evidence,
    offset: _Offset,
    ranks: Sequence[int],
    common: Sequence[int],
    theirs: list[Call],
    mine: list[Call],
    body: Sequence[Beat],
) -> f.Finding:
    """Return a finding on skipped or extra calls.

    Args:
        body: The loop body if the calls of all groups are compared; empty if only one group is.
    """
    calls = theirs if offset.calls > 0 else mine
    call, step = calls[offset.at], evidence.step(mine[offset.at])
    paths = [each.path for each in calls]
    turn = -(-paths[: offset.at + 1].count(call.path) // max(1, [path for _, path in body].count(call.path)))
    title, is_common = step.title if step is not None else "", any(one.path == call.path for one in theirs)
    return Slipped(
        calls=offset.calls,
        call=f.CallFacts(rank=call.rank, name=call.op, source=call.source),
        caller=call.caller,
        turn=turn if paths.count(call.path) > 1 and is_common and not evidence.trace.is_tail else 0,
        met_off="" if body else title,
        ranks=tuple(ranks),
        others=tuple(common),
        step=title,
        lines=(mine[offset.at].source, call.caller, theirs[offset.at].source),
    )


# -- in words

_MOST_MISFITS = 3


def _render_skipped(ahead: Sequence[int], skipped: str) -> str:
    return f"; {name_ranks(ahead)} may have skipped {skipped} and be one call ahead" if ahead else ""


def _by_side(sides: Iterable[f.Side], verb: str) -> list[str]:
    """Return `rank 1 called broadcast at train.py:22`, for each side."""
    return [
        f"{name_ranks(side.ranks)} {verb} {side.what}{_render_lines_and_callers(side.lines, side.callers)}"
        for side in sides
    ]


def _render_lines_and_callers(lines: Sequence[str], callers: Sequence[str]) -> str:
    """Return ` at train.py:5 (called at train.py:40)`."""
    by = join_words(filter(None, callers))
    return f"{render_lines(lines)}{f' (called at {by})' if by else ''}"


def _misfits(misfits: Sequence[Misfit]) -> str:
    """Return `rank 0 sends 2 rows to rank 1, but rank 1 has space for 1`, for the first misfits."""
    shown = "; ".join(
        f"rank {one.giver} sends {format_count(one.rows, 'row')} to "
        f"{f'rank {one.taker}, but rank {one.taker}' if one.taker != one.giver else 'itself, but it'} has space "
        f"for {one.expected_rows}"
        for one in misfits[:_MOST_MISFITS]
    )
    extra_count = len(misfits) - _MOST_MISFITS
    return shown + (f"; and {format_count(extra_count, 'more pair')}" if extra_count > 0 else "")
