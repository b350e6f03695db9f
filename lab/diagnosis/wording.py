"""The words of a diagnosis: renders findings, and the reason of a verdict, from their data. Nothing reads them.

The words of what a feature finds are in that feature, in the same form as `WORDS`. What is said of runs in which
nothing went wrong is in `lab.diagnosis.reasons`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lab.diagnosis import finding as f
from lab.diagnosis.finding import Finding, FindingKind, Words, WordTable, group_ranks
from lab.words import (
    capital,
    clip,
    format_bytes,
    format_duration,
    format_limit,
    listing,
    name_nodes,
    name_ranks,
    ordinal,
    plural,
    was,
)

_LONGEST_REFUSAL = 120
_LONGEST_THREAD_ERROR = 120
_MOST_HITS = 3
_GROUP_ORDER = "Ranks have to enter the collectives of several groups in the same order."
_WAY_TO_INSTALL = (
    "; the nodes do not have it: name its package under `requirements:` in the scenario, in a block `# /// script` at "
    "the head of the script, or in a file for `lab up --requirements`"
)

# -- ranks, calls, places


def full_name(rank: int, node: str) -> str:
    """`rank 1 (node0)`."""
    return f"rank {rank} ({node})" if node else f"rank {rank}"


def join_ranks(clauses: Iterable[tuple[int, str]]) -> list[str]:
    """A clause for all ranks of which the same is said: `ranks 0 and 1 were at train.py:4`."""
    return [
        f"{name_ranks(ours)} {was(ours)}{what[3:]}" if what.startswith("was ") else f"{name_ranks(ours)} {what}"
        for what, ours in group_ranks(dict(clauses)).items()
    ]


def at(lines: Iterable[str]) -> str:
    """` at train.py:4 and train.py:9`; nothing where no line is known."""
    known = listing(lines)
    return f" at {known}" if known else ""


def _at(calls: Iterable[f.CallFacts]) -> str:
    return at(call.source for call in calls)


def describe_call(call: f.CallFacts) -> str:
    """`recv from rank 1 with tag 3`, `all_reduce #2`."""
    if not call.direction:
        return call.name + (f" in {call.group}" if call.group else "")
    tag = f" with tag {call.tag}" if call.tag else ""
    peer = "any rank" if call.peer is None else f"rank {call.peer}"
    return f"{call.name} {call.direction} {peer}{tag}"


def describe_wait(call: f.CallFacts) -> str:
    """`recv from rank 1 with tag 3 at train.py:9`."""
    return describe_call(call) + at([call.source])


def render_place(place: f.CodePlace) -> str:
    """`in all_reduce at train.py:41`."""
    if place.call:
        return f"in {place.call} at {place.at}"
    where = f"at {place.at} ({place.source})" if place.source else f"at {place.at}"
    if place.child is None:
        return where
    whose = "its DataLoader worker" if place.child.loader else "a process that it started"
    return f"{where}, {whose} {render_place(place.child)}"


def render_stood(stood: f.Stood) -> str:
    """`at train.py:37 (time.sleep(99))`, `in barrier at train.py:41`, `done, but did not end`."""
    if stood.state == "returned":
        return "done with the call"
    if stood.state == "leaving":
        held = f": it was {render_place(stood.place)}" if stood.place else ""
        held = held or (f": a thread of it was {render_place(stood.thread)}" if stood.thread else "")
        return f"done, but did not end{held}"
    after = f", after a thread of it had {render_raised(stood.raised)}" if stood.raised else ""
    return (render_place(stood.place) if stood.place else "in code without a Python stack") + after


def render_raised(raised: f.ThreadError) -> str:
    """`raised OSError: no at load.py:7`."""
    return f"raised {clip(raised.error.partition(chr(10))[0], _LONGEST_THREAD_ERROR)}{at([raised.at])}"


def render_end(end: f.End) -> str:
    """`raised ValueError: ... at train.py:30`."""
    place = f" {render_place(end.place)}" if end.place else ""
    where = f" at {end.place.at}" if end.place else ""
    if end.how == "memory":
        sizes = [f"it held {format_bytes(end.held_bytes)}"] if end.held_bytes else []
        sizes += [f"its node's limit is {format_limit(end.limit_bytes)}"] if end.limit_bytes else []
        seen = end.last_seen
        if not place and seen is not None:
            place = f", last seen {'after' if seen.ended else 'in'} {seen.name}{at([seen.source])}"
        return f"was killed for lack of memory{place}{': ' if sizes else ''}{', '.join(sizes)}"
    expected = f", expected {end.expected_code}," if end.expected_code else ""
    return {
        "signal": f"was killed by {end.signal}{place}",
        "raised": f"raised {end.error}{where}",
        "unseen": f"ended{where}, and nobody saw how",
        "exited": f"exited with code {end.code}{expected}{where}{f': {end.error}' if end.error else ''}",
    }[end.how]


def render_activity(did: f.Activity) -> str:
    """What any rank did, in words that follow its name: it waited, failed, had ended, or was somewhere else."""
    after = ""
    if did.after is not None:
        after = f" after {did.after.name} at {did.after.source}" if did.after.calls else ", before its first call"
    return {
        "waited": f"waited in {describe_wait(did.call) if did.call else ''}",
        "node_lost": f"went away with its node, {did.node}{after}",
        "failed": f"{render_end(did.end) if did.end else ''}{after}",
        "left": f"had ended with code {did.code}{after}",
        "stood": f"was {render_stood(did.stood) if did.stood else ''}",
        "called": f"was somewhere after {did.call.name + _at([did.call]) if did.call else ''}",
        "unrecorded": "is not on record",
        "not_dumped": "was in no call on record",
        "uncalled": "had called nothing yet",
    }[did.what]


def describe_activities(did: Iterable[f.Activity]) -> list[str]:
    """What ranks did, a clause for all of which the same is said."""
    return join_ranks((one.rank, render_activity(one)) for one in did)


def _render_progress(progress: f.Progress | None) -> str:
    if progress is None:
        return ""
    if not progress.calls:
        return "before its first call"
    where = progress.name + at([progress.source])
    if progress.unfinished:
        return f"in {where}"
    return f"after {plural(progress.calls, 'call')}, the last of them {where}"


def _refusal(title: str, calls: Sequence[f.CallFacts]) -> str:
    """That calls failed: `reduce #2 at train.py:4 was refused to rank 1 (why)`."""
    happened = "failed on" if any(call.lost for call in calls) else "was refused to"
    ranks, why = name_ranks(call.rank for call in calls), clip(calls[0].error, _LONGEST_REFUSAL)
    return f"{title}{_at(calls)} {happened} {ranks} ({why})"


def again(count: int) -> str:
    """That the same happened in other steps; empty where it did not."""
    return f"So it was in {plural(count, 'other step')}, too." if count else ""


def render_waited(seconds: float | None, words: str = " {}") -> str:
    """How long ranks had been waiting, in words around it; empty where no clock tells."""
    return "" if seconds is None else words.format(format_duration(seconds))


def ran_there(ranks: Sequence[int]) -> str:
    """Who ran on the nodes that a clause is about, behind that; empty where nobody did."""
    return f"; {name_ranks(ranks)} ran there" if ranks else ""


def render_ring(ring: Sequence[int]) -> str:
    """`0 → 1 → 0`."""
    return " → ".join(map(str, (*ring, ring[0])))


# -- runs that did not end


def _missed_step(facts: f.MissedStep) -> Words:
    who, lines, unknown = name_ranks(call.rank for call in facts.waits), _at(facts.waits), ""
    if facts.unknown:
        them = "them" if len(facts.unknown) > 1 else "it"
        unknown = f"Whether {name_ranks(facts.unknown)} came to it is not known: there is no dump of {them}."
    if not facts.missing:
        return f"{who} waited in {facts.step}{lines}", unknown
    there = render_waited(facts.seconds, " {}," if lines else " {}") + lines
    whom, did = name_ranks(facts.missing), listing(describe_activities(facts.did))
    head, rest = f"{whom} never entered {facts.step}", f"{capital(who)} waited there{there}; {did}."
    if facts.refused:
        head = _refusal(facts.step, facts.refused)
    elif facts.message:
        verb = "sent" if facts.receives else "received"
        head = f"{who} waited in {describe_call(facts.waits[0])}{there}: {whom} never {verb}"
        rest = f"{capital(did)}."
    untold = ""
    if facts.untold_messages:
        untold = f"If {name_ranks(facts.untold_messages)} waited for a message, these dumps do not tell it."
    return head, rest, unknown, _GROUP_ORDER if facts.several_groups else "", untold


def _ring(facts: f.Ring) -> Words:
    each = listing(join_ranks((call.rank, f"in {describe_wait(call)}") for call in facts.waits))
    ranks = name_ranks(call.rank for call in facts.waits)
    lines = listing(f"{group.what} at {group.lines[0]}" for group in facts.groups)
    advice = {
        "collectives": _GROUP_ORDER + (f" Groups were made here: {lines}." if lines else ""),
        "receives": "All of them receive before they send: one has to send first.",
        "sends": "All of them send before they receive: one has to receive first.",
        "mixed": "None of these calls can end before another one does.",
    }
    took = render_waited(facts.seconds, ", for {} now")
    return f"{ranks} wait for each other in a ring ({render_ring(facts.cycle)}){took}: {each}", advice[facts.all_of]


def _alone(place: f.CodePlace | None, gone: Iterable[int]) -> str:
    where = f" {render_place(place)}" if place else ""
    return f"went on alone{where} when {name_ranks(gone)} had ended with code 0"


def _stood_apart(facts: f.StoodApart) -> str:
    stood = render_stood(facts.stood) if facts.stood else ""
    return {
        "absent": f"{'did not come to the collective that others waited in, it ' if facts.waited else ''}was {stood}",
        "alone": _alone(facts.place, facts.others),
        "gone": "exited early, with code 0, while others waited for it",
        "odd": f"was {stood} while others were {render_stood(facts.common) if facts.common else ''}",
    }[facts.how]


def _in_flight(facts: f.InFlight) -> Words:
    lines = at(facts.sources)
    there = (render_waited(facts.seconds, "{}," if lines else "{}") + lines).strip()
    who = "everybody" if facts.entered is None else name_ranks(facts.entered)
    entered = f"{who} entered {facts.step}, and {name_ranks(facts.others)} never came out of it"
    return f"{entered}{f' ({there})' if there else ''}: the data did not arrive, or there was no time left for it"


# -- what came from outside


def _outside(facts: f.Outside) -> Words:
    if facts.what == "rank":
        return f"{full_name(facts.ranks[0], facts.node)} was stopped by {facts.signal}"
    return f"{facts.node} {facts.how}{ran_there(facts.ranks)}"


# -- runs that failed


def name_lost(facts: f.FirstFailure, when: str = " in mid-run") -> str:
    """How nodes were lost: `node1 was killed in mid-run`."""
    how = facts.how or "went away"
    if len(facts.nodes) > 1:
        how = how.replace("was ", "were ", 1).replace("its host", "their host")
    return f"{name_nodes(facts.nodes)} {how}{when}"


def _missed(missed: f.Missed) -> str:
    where = render_stood(missed.stood) if missed.stood else ""
    took = format_duration(missed.seconds)
    was_at = f"; it was {where}" if where else ""
    return {
        "exited": f"exited early, with code {missed.code} after {took}, while others still needed it",
        "was_late": f"was late: it was {where}",
        "left": f"left the others while they still needed it, it was {where}",
        "never_came": f"had not come to {missed.step} when rank {missed.victim} gave it up{was_at}",
        "came_late": f"came to {missed.step}{at([missed.source])} {took} after rank {missed.victim} had given it up",
    }[missed.how]


def _first_failure(facts: f.FirstFailure) -> Words:
    if facts.what == "nodes_lost":
        head = f"{name_lost(facts)}; {name_ranks(facts.ranks)} ran there"
    elif facts.what == "node_lost":
        head = f"rank {facts.ranks[0]}'s node, {facts.node}, went away"
    else:
        head = f"{full_name(facts.ranks[0], facts.node)} {_failed_by_itself(facts)}"
    progress = _render_progress(facts.progress)
    hits = [f"{capital(_hit(hit))}." for hit in facts.hits[:_MOST_HITS]]
    return f"{head}, {progress}" if progress else head, *hits


def _failed_by_itself(facts: f.FirstFailure) -> str:
    if facts.what in ("late", "left") and facts.missed:
        return _missed(facts.missed)
    if facts.what == "failed" and facts.end:
        return render_end(facts.end)
    if facts.what == "left":
        return f"ended with code {facts.code}"
    return f"was {render_place(facts.place)} and no longer with the others" if facts.place else ""


def _hit(hit: f.Hit) -> str:
    ranks = [call.rank for call in hit.calls]
    failed = [call for call in hit.calls if call.error]
    if len(failed) == len(hit.calls) and not any(call.lost for call in hit.calls):
        return _refusal(hit.name, hit.calls)
    return f"{name_ranks(ranks)} {was(ranks)} in {hit.name}{_at(hit.calls)}{' and failed there' if failed else ''}"


def _went_alone(facts: f.WentAlone) -> str:
    if facts.call is None:
        return _alone(facts.place, facts.others)
    called, others = f"it called {facts.step}{_at([facts.call])}", name_ranks(facts.others)
    never = f"which {others} never {'answered' if facts.message else 'called'}"
    return f"went on alone: {called}, {never}; they had ended with code 0 {_render_progress(facts.progress)}".rstrip()


def _odd_call(facts: f.OddCall) -> str:
    return f"called {facts.call}{at(facts.lines)} where most others called {facts.common}"


def render_wrong(wrong: f.WrongElement) -> str:
    """What stands where: `element 0 on rank 1 is 7 and should be 6`."""
    of = f" of its {ordinal(wrong.tensor + 1)} tensor" if wrong.tensors > 1 else ""
    if wrong.element is None:
        tensor = f"the {ordinal(wrong.tensor + 1)} tensor of rank" if of else "rank"
        than = "what was brought can give" if wrong.reduces else "was given"
        return f"{tensor} {wrong.rank} {'is' if of else 'holds'} another tensor than {than}"
    got, expected = (
        f"{value:.6g}" if isinstance(value, float) else str(value) for value in (wrong.got, wrong.expected)
    )
    return f"element {wrong.element}{of} on rank {wrong.rank} is {got} and should be {expected}"


WORDS: WordTable = {
    FindingKind.OUT_OF_TIME: lambda facts: (
        "the time was up while the ranks were at work: nobody had waited longer than "
        f"{format_duration(facts.longest_s or 0.0)}",
        f"{capital(listing(describe_activities(facts.did)))}.",
    ),
    (FindingKind.OWN_CODE, f.Activities): lambda facts: (
        f"nobody waited in a collective or for a message: {listing(describe_activities(facts.did))}"
    ),
    FindingKind.WAITING: lambda facts: (
        f"everybody was in torch.distributed: {listing(describe_activities(facts.did))}",
        f"Rank {facts.ranks[0]} was not where most others were." if facts.ranks else "",
    ),
    f.MissedStep: _missed_step,
    f.Ring: _ring,
    f.StoodApart: lambda facts: f"rank {facts.ranks[0]} {_stood_apart(facts)}",
    f.InFlight: _in_flight,
    f.Activities: lambda facts: listing(describe_activities(facts.did)),
    f.Outside: _outside,
    f.FirstFailure: _first_failure,
    f.WentAlone: lambda facts: f"{full_name(facts.ranks[0], facts.node)} {_went_alone(facts)}",
    f.OddCall: lambda facts: f"rank {facts.ranks[0]} {_odd_call(facts)}",
}
"""The words of the kernel's findings."""
_DID: Mapping[Any, Callable[[Any], str]] = {
    f.StoodApart: _stood_apart,
    f.FirstFailure: _failed_by_itself,
    f.WentAlone: _went_alone,
    f.OddCall: _odd_call,
}


def render_did(facts: f.Facts) -> str:
    """What the one rank did that a finding names, in words that follow its name; empty where there are none."""
    return _DID[type(facts)](facts) if type(facts) in _DID and len(facts.ranks) == 1 else ""


# -- the reason of a verdict


def hang_reason(time_given: str, heads: Sequence[str], did: Iterable[tuple[int, str]]) -> str:
    """Why a run hung: what was found, and where ranks were, or what those did that had ended."""
    return f"no end after {time_given}: {'; '.join([*heads, *join_ranks(did)])}"


def node_reason(facts: f.FirstFailure, *, launcher: bool) -> str:
    """Why a run failed that lost nodes."""
    met = ", and the launcher's processes met there" if launcher else ""
    return f"{name_lost(facts)}; {name_ranks(facts.ranks)} ran there{met}"


def odd_call_reason(finding: Finding, rank: int, node: str, victim: int, end: f.End | None) -> str:
    """Why a run failed in which a rank called something else than most others; who failed then, if that is another."""
    headline, name = finding.headline, f"rank {rank} "
    did = f"did not call what the others called: {headline}"
    if finding.kind is FindingKind.GROUPS and headline.startswith(name):
        did = headline.removeprefix(name)  # it says what this rank did
    then = f"; {then_failed(victim, end)}" if end is not None else ""
    return f"{full_name(rank, node)} {did}{then}"


def own_reason(first: str, before: Finding | None, others: Iterable[Finding]) -> str:
    """Why a run failed in which a rank failed by itself: what ranks had done before that, and further causes."""
    earlier = f"; before that, {before.headline}" if before is not None else ""
    return "; ".join([first + earlier, *(f"besides, {one.headline}" for one in others)])


def way_to_get_module(own: Any) -> str:
    """What to do about a module that a rank did not find; `own`: which file of the person's own it is, if it is one."""
    if own is None:
        return _WAY_TO_INSTALL
    return (
        f"; {own.path} was not shipped: nodes get the folder of the script, {own.folder}, without what .labignore "
        "names there and without hidden folders: put it into that"
    )


def then_failed(rank: int, end: f.End) -> str:
    """How another rank failed after what a verdict begins with."""
    return f"rank {rank} then {render_end(end)}"


def it_failed(end: f.End) -> str:
    """How a rank failed that went on alone, behind that."""
    return f": it {render_end(end)}"


def no_such_rank(peer: int) -> str:
    """Why a message failed, behind that."""
    return f": there is no rank {peer}"
