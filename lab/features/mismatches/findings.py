"""Steps in which ranks did not do the same, and calls that ranks left out or made once more.

The calls of a training loop repeat. Of two ranks, where there is no majority to tell, the one whose call is not what
its loop would have done next is out of step. Where the loop's body is over, either of them may rightly have left the
loop: then only a call out of the middle of the body shows that its rank has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lab.diagnosis import finding as f
from lab.diagnosis.ends import lines_of, of_step
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words, group_ranks
from lab.diagnosis.wording import again, at, render_wrong
from lab.feature import find_hook
from lab.trace.clashes import Clash, Misfit, find_clashes
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, format_duration, join_words, name_ranks


class Mismatch(Finding):
    """Ranks that called different operations where all had to call the same."""

    kind: Kind = FindingKind.MISMATCH
    number: int | None
    """Of the call in its group."""
    group: str = ""
    """Empty for the default group."""
    odd_sides: tuple[f.Side, ...] = ()
    """What the odd ones called."""
    sides: tuple[f.Side, ...] = ()
    """What the others called, or everybody where nobody is odd."""
    by_rhythm: bool = False
    """Whether the odd one was found by its own loop, not by a majority."""
    again: int = 0
    """In how many other steps it was so."""
    stuck_s: float | None = None

    def render(self) -> Words:
        """Who called what."""
        number = f"call #{self.number}" + (f" of {self.group}" if self.group else "")
        odd, others = _by_side(self.odd_sides, "called"), _by_side(self.sides, "called")
        head, why = f"{join_words(odd)} where {join_words(others)} ({number})", ""
        if not odd:
            head = f"in {number} ranks called different operations: {'; '.join(others)}"
            why = "No majority tells which is wrong."
        elif self.by_rhythm:
            why = f"Until then both did the same, over and over; {name_ranks(self.ranks)} left that rhythm."
        return head, why, again(self.again), _stuck(self.stuck_s)


class Unequal(Finding):
    """Ranks that called the same operation with arguments that do not fit together."""

    sides: tuple[f.Side, ...]
    """What each side brought; the majority's first, if there is one."""
    misfits: tuple[Misfit, ...] = ()
    at: tuple[str, ...] = ()
    wrong: f.WrongElement | None = None
    """The first value that came out wrong."""
    wrong_ranks: tuple[int, ...] = ()
    again: int = 0
    """In how many other steps it was so."""
    stuck_s: float | None = None

    def render(self) -> Words:
        """Who brought what, and what came of it."""
        verb = {"root": "named", "reduce_op": "reduced by"}.get(self.kind.value, "brought")
        sides, lines = _by_side(self.sides, verb), join_words(self.at)
        head = f"{join_words(sides[1:])}, where {sides[0]}" if self.ranks else f"ranks do not agree: {'; '.join(sides)}"
        head = f"in {self.step} {_misfits(self.misfits) or head}{f' ({lines})' if lines else ''}"
        wrong = ""
        if self.wrong is not None:
            who = capitalize_first(name_ranks(self.wrong_ranks))
            wrong = f"{who} came out of it with wrong values: {render_wrong(self.wrong)}."
        return head, wrong, again(self.again), _stuck(self.stuck_s)


class Slipped(Finding):
    """Ranks that left out calls of the others, or made more."""

    kind: Kind = FindingKind.SLIPPED
    calls: int
    """How many they left out; below 0: how many more they made."""
    call: f.CallFacts
    """The first of them."""
    turn: int = 0
    """The round of their loop; 0 where the line comes only once."""
    met_off: str = ""
    """The step from which on they met the others off by that."""

    def render(self) -> Words:
        """Who left out which calls, or made them once more."""
        count, common = abs(self.calls), name_ranks(self.others)
        number = "one call" if count == 1 else format_count(count, "call")
        it, are = ("they", "are") if len(self.ranks) > 1 else ("it", "is")
        rest = {1: "", 2: " and the call after it"}.get(count, f" and the {count - 1} calls after it")
        calls = f"{self.call.name}{at([self.call.source])}{rest}"
        did, where = f"left out {calls}", "ahead of"
        if self.calls < 0:
            did, where = f"called {calls} once more than {common}", "behind"
        turn = f" in round {self.turn}" if self.turn else ""
        head = f"{name_ranks(self.ranks)} {are} {number} {where} {common}:{turn} {it} {did}"
        return head, f"From {self.met_off} on they met {number} off." if self.met_off else ""


def disagreements(evidence: Evidence) -> list[Finding]:
    """What ranks called differently, each kind at each place once; steps that never ended come first."""
    by_place: dict[tuple[str, tuple[str, ...]], list[tuple[Step, Mismatch | Unequal]]] = {}
    for clash in find_clashes(evidence.steps):
        finding = _mismatch(clash, evidence) if clash.kind == FindingKind.MISMATCH.value else _unequal(clash)
        by_place.setdefault((finding.kind, finding.lines), []).append((clash.step, finding))
    groups = sorted(by_place.values(), key=lambda group: all(step.state == "completed" for step, _ in group))
    clashing = [_waiting(*group[0], len(group) - 1, evidence) for group in groups]
    slips, turns = find_slips(evidence), {step.title: step.number for step in evidence.steps}
    first = min((turns[finding.step] for finding in clashing if finding.kind is FindingKind.MISMATCH), default=0)
    before = [slip for slip in slips if turns.get(slip.step, first) < first]
    return [*before, *clashing, *(slip for slip in slips if slip not in before)]


def _waiting(step: Step, finding: Mismatch | Unequal, again: int, evidence: Evidence) -> Finding:
    """The finding with how often it came, and how long ranks had been waiting in its step when the run was over."""
    stopped = {rank for rank, facts in evidence.ranks.items() if facts.stopped}
    since = [call.begin for call in step.calls.values() if call.state == "unfinished" and call.rank in stopped]
    took = round(max(0.0, evidence.over - min(since)), 6) if since else None
    return replace(finding, again=again, stuck_s=took, seconds=took)


def _mismatch(clash: Clash, evidence: Evidence) -> Mismatch:
    """Ranks that called different operations where all had to call the same."""
    step = clash.step
    odd = clash.odd or _by_rhythm(step, evidence)
    common = of_step(step, odd)
    return Mismatch(
        number=step.seq,
        group="" if step.group.label == "default" else step.group.title,
        odd_sides=_called(step, odd),
        sides=_called(step, common["others"] if odd else [rank for _, ranks in clash.sides for rank in ranks]),
        by_rhythm=bool(odd) and not clash.odd,
        **common,
    )


def _by_rhythm(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Of two ranks, the one that did not do what both had been doing."""
    if len(step.group.ranks) != _PAIR or len(step.calls) != _PAIR:
        return ()
    ranks, name = sorted(step.calls), step.group.name
    who = out_of_step(*(beats(evidence.calls(rank), name) for rank in ranks))
    return () if who is None else (ranks[who],)


def _called(step: Step, ranks: Sequence[int]) -> tuple[f.Side, ...]:
    """What ranks called, that may have called different things."""
    sides = f.sides_of({rank: step.calls[rank].op for rank in ranks})
    return tuple(replace(side, lines=lines_of(step.calls[rank] for rank in side.ranks)) for side in sides)


def _unequal(clash: Clash) -> Unequal:
    """Ranks that called the same operation with arguments that do not fit together."""
    step, odd = clash.step, clash.odd
    wrong_results = find_hook("wrong_results") if clash.comparable else None
    wrongs = wrong_results(step) if wrong_results else []
    return Unequal(
        kind=FindingKind(clash.kind),
        sides=tuple(f.Side(ranks=tuple(ranks), what=what) for what, ranks in clash.sides),
        misfits=clash.misfits,
        at=lines_of(step.calls[rank] for rank in odd or sorted(step.calls)),
        wrong=wrongs[0] if wrongs else None,
        wrong_ranks=tuple(wrong.rank for wrong in wrongs),
        **of_step(step, odd),
    )


# -- the rhythm of a rank: the loop that its calls repeat

_PAIR = 2
"""Ranks without a majority."""
_LONGEST = 64
"""Calls of the longest loop body that is looked for."""
_TURNS = 2
"""A body has to have been repeated so often to be believed."""

Beat = tuple[str, str]
"""Operation and line."""


def beats(calls: Sequence[Call], group: str) -> list[Beat]:
    """The collectives of a rank in a group, in order."""
    return [(call.op, call.source) for call in calls if call.group == group and call.seq is not None]


def out_of_step(one: Sequence[Beat], other: Sequence[Beat]) -> int | None:
    """0 if the first sequence left the common rhythm, 1 if the second did, None if that cannot be told."""
    common = _parting(one, other, min(len(one), len(other)))
    body, position = _body(one[:common])
    if not body:
        return None
    here = [sequence[common] if common < len(sequence) else None for sequence in (one, other)]
    expected = body[position]
    if (here[0] == expected) == (here[1] == expected):
        return None
    strayed = 0 if here[1] == expected else 1
    return strayed if position or here[strayed] in body else None


def _parting(one: Sequence[Beat], other: Sequence[Beat], default: int) -> int:
    """The first place where two sequences differ."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), default)


def due(done: Sequence[Beat]) -> int | None:
    """Where in these calls the one stands that its loop would have done next; None where they end no body half way."""
    body, position = _body(done)
    return len(done) - len(body) if position else None


def skipped(done: Sequence[Beat]) -> list[int]:
    """Where in these calls those stand that were left out a round later, in the middle of a loop that then went on."""
    places = []
    runs = dict.fromkeys(range(1, _LONGEST + 1), 0)  # by period: how many calls in a row were those one period before
    for n, beat in enumerate(done):
        believed = [period for period, run in runs.items() if run + period >= _TURNS * period]
        period = max(believed, key=lambda period: runs[period] + period, default=0)
        if period and runs[period] % period and beat != done[n - period]:
            body = done[n - period : n]
            if [*body, *body][1:3] == [*done[n : n + 2]]:
                places.append(n - period)
        runs = {period: run + 1 if n >= period and done[n - period] == beat else 0 for period, run in runs.items()}
    return places


def _body(done: Sequence[Beat]) -> tuple[Sequence[Beat], int]:
    """The body of the loop that these calls end in, and how far into it they end; empty where nothing repeats."""
    length, period = 0, 0
    for candidate in range(1, min(_LONGEST, len(done) // _TURNS) + 1):
        tail = candidate
        while tail < len(done) and done[-tail - 1] == done[-tail - 1 + candidate]:
            tail += 1
        if tail > length and tail >= _TURNS * candidate:
            length, period = tail, candidate
    start = len(done) - length
    return done[start : start + period], length % period if period else 0


# -- ranks that left out a call of their group, or made one more: from then on they meet the others one call off

_MOST_CALLS = 8
"""So many calls left out in a row are looked for."""
_LEAST_MATCHED = 2
"""At least this many calls after the slip must be those of the others."""


class _Slip(NamedTuple):
    """Where one sequence of calls left another."""

    at: int
    """Position in both."""
    calls: int
    """How many it left out; below 0: how many more it made."""


def find_slips(evidence: Evidence) -> list[Finding]:
    """In each group with a step that never ended, ranks that had left out calls of the others or made more.

    Where no group tells, over all groups and messages: a step may hang in another group than where a call was left out.
    """
    collectives = {step.group.name: step.group for step in evidence.steps if not step.message}
    hung = {step.group.name for step in evidence.steps if not step.message and step.state != "completed"}
    slips = []
    for name in (name for name in collectives if name in hung):
        calls = {one: [c for c in evidence.calls(one) if c.group == name and c.seq] for one in collectives[name].ranks}
        slips += _slips_in(evidence, calls, {one: beats(ours, name) for one, ours in calls.items() if ours})
    if slips or all(step.state == "completed" for step in evidence.steps):
        return slips
    # A rank that left the loop which it and all others, two at least, had been in.
    calls = {rank: ours for rank in sorted(evidence.ranks) if (ours := evidence.calls(rank))}
    done = {rank: [(call.op, call.source) for call in ours] for rank, ours in calls.items()}
    return _slips_in(evidence, calls, done, anywhere=True) if len(done) > _PAIR else []


def _slips_in(
    evidence: Evidence, calls: Mapping[int, list[Call]], done: Mapping[int, list[Beat]], *, anywhere: bool = False
) -> list[Finding]:
    common = _in_step(done)
    odd = [rank for rank in done if rank not in common]
    if not common or not odd or (anywhere and len(odd) != 1):
        return []
    longest = max(common, key=lambda rank: len(done[rank]))
    slips = {rank: slip for rank in odd if (slip := _slip(done[rank], done[longest])) is not None}
    alike = group_ranks({one: (slip, done[longest if slip.calls > 0 else one][slip.at]) for one, slip in slips.items()})
    return [
        _slipped(evidence, slip, ranks, common, calls[longest], calls[ranks[0]], body)
        for (slip, _), ranks in alike.items()
        if (body := _body(done[longest][: slip.at])[0] if anywhere else ()) or not anywhere
    ]


def _in_step(done: Mapping[int, list[Beat]]) -> list[int]:
    """Ranks that made the same calls, as far as each came: more than half, or of two the one that kept its rhythm."""
    if len(done) == _PAIR:
        one, other = done
        return {0: [other], 1: [one], None: []}[out_of_step(done[one], done[other])]
    for rank in sorted(done, key=lambda rank: -len(done[rank])):
        same = [other for other in done if done[other] == done[rank][: len(done[other])]]
        if 2 * len(same) > len(done):
            return sorted(same)
    return []


def _slip(mine: Sequence[Beat], theirs: Sequence[Beat]) -> _Slip | None:
    """The first place where they part, if one goes on there as the other does a few calls later."""
    at = _parting(mine, theirs, -1)
    for calls in range(1, _MOST_CALLS + 1 if at >= 0 else 0):
        for sign, behind, ahead in ((1, theirs, mine), (-1, mine, theirs)):
            pairs = list(zip(ahead[at:], behind[at + calls :], strict=False))
            if len(pairs) >= _LEAST_MATCHED and all(a == b for a, b in pairs):
                return _Slip(at, sign * calls)
    return None


def _slipped(
    evidence: Evidence,
    slip: _Slip,
    ranks: Sequence[int],
    common: Sequence[int],
    theirs: list[Call],
    mine: list[Call],
    body: Sequence[Beat],
) -> Finding:
    """Where ranks slipped, by the calls of one group; with `body`, that of their loop, by all that they called."""
    calls = theirs if slip.calls > 0 else mine
    call, step = calls[slip.at], evidence.step(mine[slip.at])
    lines = [each.source for each in calls]
    turn = -(-lines[: slip.at + 1].count(call.source) // max(1, [line for _, line in body].count(call.source)))
    title = step.title if step is not None else ""
    return Slipped(
        calls=slip.calls,
        call=f.CallFacts(rank=call.rank, name=call.op, source=call.source),
        turn=turn if lines.count(call.source) > 1 else 0,
        met_off="" if body else title,
        ranks=tuple(ranks),
        others=tuple(common),
        step=title,
        lines=(mine[slip.at].source, theirs[slip.at].source),
    )


# -- in words

_MOST_MISFITS = 3


def _by_side(sides: Iterable[f.Side], verb: str) -> list[str]:
    """`rank 1 called broadcast at train.py:22`, for each side."""
    return [f"{name_ranks(side.ranks)} {verb} {side.what}{at(side.lines)}" for side in sides]


def _stuck(seconds: float | None) -> str:
    return "" if seconds is None else f"It went no further for {format_duration(seconds)}."


def _misfits(misfits: Sequence[Misfit]) -> str:
    """`rank 0 gives rank 1 2 rows, where that one has room for 1`, for the first misfits of splits."""
    shown = "; ".join(
        f"rank {one.giver} gives {f'rank {one.taker}' if one.taker != one.giver else 'itself'} "
        f"{format_count(one.rows, 'row')}, where "
        f"{'that one' if one.taker != one.giver else 'it'} has room for {one.room}"
        for one in misfits[:_MOST_MISFITS]
    )
    more = len(misfits) - _MOST_MISFITS
    return shown + (f"; so it is between {format_count(more, 'more pair')}" if more > 0 else "")
