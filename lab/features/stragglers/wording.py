"""The words for stragglers and times."""

from __future__ import annotations

from typing import Any

from lab.diagnosis.finding import Words, WordTable
from lab.diagnosis.wording import at
from lab.features.stragglers.findings import NOISE_S, Account, CriticalPath, Straggler, TimeShares
from lab.features.stragglers.timing import TimeShare
from lab.words import format_bytes, format_duration, listing, name_ranks, plural

_MOST_SHARES = 4
_STEPPED = "They were held before each call until a key was pressed, so times say nothing of this run."
_DUMPED = "That is from dumps, which do not tell how the clocks of their machines differ, so nothing is said of times."


def _straggler(facts: Straggler) -> Words:
    if facts.often:
        how = f"came last to {facts.last} of the {plural(facts.steps, 'step')} in which anybody waited, and"
    else:
        ends = dict.fromkeys(map(format_duration, (facts.least_s, facts.most_s)))
        usual = f", where {format_duration(facts.usual_s)} is usual" if facts.usual_s >= NOISE_S / 2 else ""
        by = f"by {' to '.join(ends)} at {facts.last} of {plural(facts.steps, 'step')}{usual}, which"
        how = f"was late now and then: {by}" if facts.seldom else f"was late {by}"
    each = " each" if len(facts.others) > 1 else ""
    cost = f"cost {name_ranks(facts.others)} {format_duration(facts.each_s)}{each}, {facts.share:.0%} of the time"
    turns = ""
    if facts.turns:
        turns = f": {format_duration(facts.each_s / facts.turns)} in each of {plural(facts.turns, 'training step')}"
    collected = ""
    if facts.collected_in:
        ran = format_duration(facts.collected_s)
        collected = f"Its garbage collector ran for {ran} of that, in {facts.collected_in} of them."
    entered = f"It entered them at {facts.lines[0]}." if facts.lines else ""
    return f"rank {facts.ranks[0]} {how} {cost}{turns}", entered, collected


def _time_shares(facts: TimeShares) -> Words:
    head = f"where the time went: {'; '.join(map(_share, facts.shares))}"
    if len(facts.shares) > _MOST_SHARES:
        most = max(facts.shares, key=lambda share: share.waiting)
        least = min(facts.shares, key=lambda share: share.waiting)
        head = f"most waiting: {_share(most)}; least: {_share(least)}"
    hidden = format_duration(facts.hidden_s)
    return head, f"Up to {hidden} of communication ran beside the ranks' own work." if facts.hidden_s > NOISE_S else ""


def _share(share: TimeShare) -> str:
    parts = {"own work": share.own, "waiting": share.waiting, "communication": share.communicating}
    if share.unknown > NOISE_S:
        parts["not known"] = share.unknown
    shares = ", ".join(f"{value / share.total:.0%} {name}" for name, value in parts.items())
    return f"rank {share.rank} {shares} of {format_duration(share.total)}"


def describe_part(part: Any) -> str:
    """A part of the critical path: `rank 1's own work before all_reduce at train.py:12`."""
    place = f"{part.op}{at([part.source])}"
    if part.rank is None:
        return f"communication in {place}"
    return f"rank {part.rank}'s own work {f'before {place}' if part.op else 'after its last call'}"


def _critical_path(facts: CriticalPath) -> Words:
    since = ", from the last new_group on" if facts.from_new_group else ""
    parts = listing(f"{part.share:.0%} was {describe_part(part)}" for part in facts.parts)
    return f"the critical path{since}: of {format_duration(facts.total_s)}, {parts}"


def _account(facts: Account) -> Words:
    if not facts.collectives and not facts.messages:
        return "no rank called a collective or sent a message"
    counts = [plural(facts.collectives, "collective")] if facts.collectives else []
    counts += [plural(facts.messages, "message")] if facts.messages else []
    took = f" in {format_duration(facts.seconds)}" if facts.timed else ""
    brought, what = format_bytes(facts.brought_bytes), facts.standing_out + at(facts.at)
    head = f"{name_ranks(facts.others)} entered {listing(counts)}{took} and brought {brought} to them"
    if facts.untimed:
        return head, _STEPPED if facts.untimed == "stepped" else _DUMPED
    if facts.longest_s:
        late = f", {format_duration(facts.late_s)} of it until rank {facts.late_rank} came" if facts.late_s else ""
        return head, f"The longest was {what}: {format_duration(facts.longest_s)}{late}."
    return head, f"The largest was {what}: {format_bytes(facts.largest_bytes)} a rank." if facts.largest_bytes else ""


WORDS: WordTable = {Account: _account, Straggler: _straggler, TimeShares: _time_shares, CriticalPath: _critical_path}
