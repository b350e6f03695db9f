"""The words of a diagnosis: renders findings, and the reason of a verdict, from their data. Nothing reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lab.diagnosis import finding as f
from lab.diagnosis.finding import Finding, FindingKind
from lab.words import (
    capital,
    clip,
    clip_middle,
    format_bytes,
    format_duration,
    format_limit,
    listing,
    name_attempts,
    name_nodes,
    name_ranks,
    ordinal,
    plural,
    was,
)

_LONGEST_REFUSAL = 120
_LONGEST_THREAD_ERROR = 120
_LONGEST_BACKEND = 80
_LONGEST_LAST_WORDS = 300
_LONGEST_ATTEMPT = 160
_MOST_LINKS = 4
_MOST_MISFITS = 3
_MOST_SHARES = 4
_MOST_HITS = 3
_MOST_CLAUSES = 6
NOISE_S = 0.002
"""Times shorter than this say nothing: schedulers and clocks are no better."""
_GROUP_ORDER = "Ranks have to enter the collectives of several groups in the same order."
_GROUP_RULE = "Every rank has to call new_group for every group, in the same order, whether it is a member or not."
_STEPPED = "They were held before each call until a key was pressed, so times say nothing of this run."
_DUMPED = "That is from dumps, which do not tell how the clocks of their machines differ, so nothing is said of times."
WAY_TO_INSTALL = (
    "; the nodes do not have it: name its package under `requirements:` in the scenario, in a block `# /// script` at "
    "the head of the script, or in a file for `lab up --requirements`"
)
"""What to do about a module that a rank did not find, as a clause behind that."""
_VERBS = {"root": "named", "reduce_op": "reduced by"}
"""The verb for what a rank differs in; tensors are brought."""

Words = Sequence[str]
"""A headline, as a clause, and whole sentences that follow it."""
_ByKind = Callable[[Any, FindingKind], Words]
_RENDERERS: dict[type, _ByKind] = {}


def render_finding(finding: Finding) -> str:
    """A finding in sentences."""
    head, *rest = _words(finding)
    return " ".join([f"{capital(head)}.", *filter(None, rest)])


def render_headline(finding: Finding) -> str:
    """What a finding says first, as a clause: without a capital letter and a full stop."""
    head = _words(finding)[0]
    return head[:1].lower() + head[1:]


def says_more(finding: Finding) -> bool:
    """Whether a finding says more than its headline."""
    return any(_words(finding)[1:])


def _words(finding: Finding) -> Words:
    return _RENDERERS[type(finding.facts)](finding.facts, finding.kind)


def _renders(facts: type) -> Callable[[Callable[[Any], Words]], Callable[[Any], Words]]:
    def register(render: Callable[[Any], Words]) -> Callable[[Any], Words]:
        _RENDERERS[facts] = lambda told, _: render(told)
        return render

    return register


def _renders_by_kind(facts: type) -> Callable[[_ByKind], _ByKind]:
    def register(render: _ByKind) -> _ByKind:
        _RENDERERS[facts] = render
        return render

    return register


# -- ranks, calls, places


def full_name(rank: int, node: str) -> str:
    """`rank 1 (node0)`."""
    return f"rank {rank} ({node})" if node else f"rank {rank}"


def together(said: Iterable[tuple[int, str]]) -> list[str]:
    """A clause for all ranks of which the same is said: `ranks 0 and 1 were at train.py:4`."""
    same: dict[str, list[int]] = {}
    for rank, words in said:
        same.setdefault(words, []).append(rank)
    return [
        f"{name_ranks(ours)} {was(ours)}{what[3:]}" if what.startswith("was ") else f"{name_ranks(ours)} {what}"
        for what, ours in same.items()
    ]


def at(lines: Iterable[str]) -> str:
    """` at train.py:4 and train.py:9`; nothing where no line is known."""
    told = listing(lines)
    return f" at {told}" if told else ""


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
        held = f"it was {render_place(stood.place)}" if stood.place else ""
        held = held or (f"a thread of it was {render_place(stood.thread)}" if stood.thread else "")
        return f"done, but did not end{f': {held}' if held else ''}"
    after = f", after a thread of it had {_raised(stood.raised)}" if stood.raised else ""
    return (render_place(stood.place) if stood.place else "in code without a Python stack") + after


def _raised(raised: f.ThreadError) -> str:
    return f"raised {clip(raised.error.partition(chr(10))[0], _LONGEST_THREAD_ERROR)}{at([raised.at])}"


def render_end(end: f.End) -> str:
    """`raised ValueError: ... at train.py:30`."""
    place = f" {render_place(end.place)}" if end.place else ""
    where = f" at {end.place.at}" if end.place else ""
    if end.how == "memory":
        told = [f"it held {format_bytes(end.held_bytes)}"] if end.held_bytes else []
        told += [f"its node's limit is {format_limit(end.limit_bytes)}"] if end.limit_bytes else []
        seen = end.last_seen
        if not place and seen is not None:
            place = f", last seen {'after' if seen.ended else 'in'} {seen.name}{at([seen.source])}"
        return f"was killed for lack of memory{place}{': ' if told else ''}{', '.join(told)}"
    if end.how == "signal":
        return f"was killed by {end.signal}{place}"
    if end.how == "raised":
        return f"raised {end.error}{where}"
    if end.how == "unseen":
        return f"ended{where}, and nobody saw how"
    expected = f", expected {end.expected_code}," if end.expected_code else ""
    return f"exited with code {end.code}{expected}{where}{f': {end.error}' if end.error else ''}"


def _after(progress: f.Progress | None) -> str:
    if progress is None:
        return ""
    return f" after {progress.name} at {progress.source}" if progress.calls else ", before its first call"


def render_activity(did: f.Activity) -> str:
    """What any rank did, in words that follow its name: it waited, failed, had ended, or was somewhere else."""
    if did.what == "waited" and did.call:
        return f"waited in {describe_wait(did.call)}"
    if did.what == "node_lost":
        return f"went away with its node, {did.node}{_after(did.after)}"
    if did.what == "failed" and did.end:
        return f"{render_end(did.end)}{_after(did.after)}"
    if did.what == "left":
        return f"had ended with code {did.code}{_after(did.after)}"
    if did.what == "stood" and did.stood:
        return f"was {render_stood(did.stood)}"
    if did.what == "called" and did.call:
        return f"was somewhere after {did.call.name}{_at([did.call])}"
    if did.what == "unrecorded":
        return "is not on record"
    return "was in no call on record" if did.what == "not_dumped" else "had called nothing yet"


def _did(did: Iterable[f.Activity]) -> list[str]:
    return together((one.rank, render_activity(one)) for one in did)


def _render_progress(progress: f.Progress | None) -> str:
    if progress is None:
        return ""
    if not progress.calls:
        return "before its first call"
    where = progress.name + at([progress.source])
    if progress.unfinished:
        return f"in {where}"
    return f"after {plural(progress.calls, 'call')}, the last of them {where}"


def refusal(title: str, calls: Sequence[f.CallFacts]) -> str:
    """That calls failed: `reduce #2 at train.py:4 was refused to rank 1 (why)`."""
    happened = "failed on" if any(call.lost for call in calls) else "was refused to"
    ranks, why = name_ranks(call.rank for call in calls), clip(calls[0].error, _LONGEST_REFUSAL)
    return f"{title}{_at(calls)} {happened} {ranks} ({why})"


def _by_side(sides: Iterable[f.Side], verb: str) -> list[str]:
    """`rank 1 called broadcast at train.py:22`, for each side."""
    return [f"{name_ranks(side.ranks)} {verb} {side.what}{at(side.lines)}" for side in sides]


def _on(sides: Iterable[f.Side]) -> str:
    return listing(f"{side.what} on {name_ranks(side.ranks)}" for side in sides)


def _have(sides: Iterable[f.Side]) -> str:
    return listing(f"{name_ranks(one.ranks)} {'has' if len(one.ranks) == 1 else 'have'} {one.what}" for one in sides)


def _again(count: int) -> str:
    return f"So it was in {plural(count, 'other step')}, too." if count else ""


def _took(seconds: float | None, words: str = " {}") -> str:
    """How long ranks had been waiting, in words around it; empty where no clock tells."""
    return "" if seconds is None else words.format(format_duration(seconds))


def _pairs(links: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{one} and {other}" for one, other in links]


def _ran_there(ranks: Sequence[int]) -> str:
    return f"; {name_ranks(ranks)} ran there" if ranks else ""


# -- runs that did not end


@_renders_by_kind(f.MissedStep)
def _missed_step(facts: f.MissedStep, kind: FindingKind) -> Words:
    who, lines = name_ranks(call.rank for call in facts.waits), _at(facts.waits)
    unknown = ""
    if facts.unknown:
        them = "them" if len(facts.unknown) > 1 else "it"
        unknown = f"Whether {name_ranks(facts.unknown)} came to it is not known: there is no dump of {them}."
    if kind is FindingKind.NOT_KNOWN:
        return f"{who} waited in {facts.step}{lines}", unknown
    there = _took(facts.seconds, " {}," if lines else " {}") + lines
    whom, did = name_ranks(facts.missing), listing(_did(facts.did))
    waited = f"{capital(who)} waited there{there}; {did}."
    head, rest = f"{whom} never entered {facts.step}", waited
    if facts.refused:
        head = refusal(facts.step, facts.refused)
    elif facts.message:
        verb = "sent" if facts.receives else "received"
        head = f"{who} waited in {describe_call(facts.waits[0])}{there}: {whom} never {verb}"
        rest = f"{capital(did)}."
    untold = ""
    if facts.untold_messages:
        untold = f"If {name_ranks(facts.untold_messages)} waited for a message, these dumps do not tell it."
    return head, rest, unknown, _GROUP_ORDER if facts.several_groups else "", untold


@_renders(f.Ring)
def _ring(facts: f.Ring) -> Words:
    chain = " → ".join(map(str, (*facts.cycle, facts.cycle[0])))
    each = listing(together((call.rank, f"in {describe_wait(call)}") for call in facts.waits))
    ranks = name_ranks(call.rank for call in facts.waits)
    head = f"{ranks} wait for each other in a ring ({chain}){_took(facts.seconds, ', for {} now')}: {each}"
    lines = listing(f"{group.what} at {group.lines[0]}" for group in facts.groups)
    advice = {
        "collectives": _GROUP_ORDER + (f" Groups were made here: {lines}." if lines else ""),
        "receives": "All of them receive before they send: one has to send first.",
        "sends": "All of them send before they receive: one has to receive first.",
        "mixed": "None of these calls can end before another one does.",
    }
    return head, advice[facts.all_of]


@_renders(f.Strayed)
def _strayed(facts: f.Strayed) -> Words:
    head = f"rank {facts.wait.rank} waited in {describe_wait(facts.wait)}{_took(facts.seconds)}, where in its rounds "
    chain = " → ".join(map(str, (*facts.cycle, facts.cycle[0])))
    return (
        f"{head}before it went on with {describe_wait(facts.usual)}",
        f"So ranks wait for each other in a ring ({chain}).",
    )


def render_stood_apart(facts: f.StoodApart) -> str:
    """What kept the others waiting, in words that follow the name of the rank."""
    stood = render_stood(facts.stood) if facts.stood else ""
    if facts.how == "absent":
        return f"{'did not come to the collective that others waited in, it ' if facts.waited else ''}was {stood}"
    if facts.how == "alone":
        where = f" {render_place(facts.place)}" if facts.place else ""
        return f"went on alone{where} when {name_ranks(facts.others)} had ended with code 0"
    if facts.how == "gone":
        return "exited early, with code 0, while others waited for it"
    return f"was {stood} while others were {render_stood(facts.common) if facts.common else ''}"


@_renders(f.StoodApart)
def _stood_apart(facts: f.StoodApart) -> Words:
    return (f"rank {facts.ranks[0]} {render_stood_apart(facts)}",)


@_renders(f.InFlight)
def _in_flight(facts: f.InFlight) -> Words:
    lines = at(facts.sources)
    there = (_took(facts.seconds, "{}," if lines else "{}") + lines).strip()
    who = "everybody" if facts.entered is None else name_ranks(facts.entered)
    return (
        f"{who} entered {facts.step}, and {name_ranks(facts.others)} never came out of it"
        f"{f' ({there})' if there else ''}: the data did not arrive, or there was no time left for it",
    )


def render_out_of_time(longest_s: float) -> str:
    """That the time was up before anybody had waited for long."""
    return f"the time was up while the ranks were at work: nobody had waited longer than {format_duration(longest_s)}"


@_renders_by_kind(f.Activities)
def _activities(facts: f.Activities, kind: FindingKind) -> Words:
    did = listing(_did(facts.did))
    if kind is FindingKind.OUT_OF_TIME:
        return render_out_of_time(facts.longest_s or 0.0), f"{capital(did)}."
    if kind is FindingKind.OWN_CODE:
        return (f"nobody waited in a collective or for a message: {did}",)
    if kind is FindingKind.WAITING:
        odd = f"Rank {facts.ranks[0]} was not where most others were." if facts.ranks else ""
        return f"everybody was in torch.distributed: {did}", odd
    return (did,)


@_renders(f.UnmatchedMessage)
def _unmatched(facts: f.UnmatchedMessage) -> Words:
    first, did = facts.waits[0], "; ".join(_did(facts.did))
    head = f"rank {first.rank} waited in {describe_wait(first)}"
    if facts.how == "neighbour":
        return (_neighbour(facts, first),)
    if facts.how == "no_such_rank":
        return (f"{head}{_took(facts.waited_s)}: there is no rank {first.peer}, the last one is {facts.last_rank}",)
    if facts.how == "passing_by":
        return (_passing_by(facts, *facts.waits[:2]),)
    if facts.how == "other_peers":
        other = facts.waits[1]
        return (
            f"{head}, and rank {other.rank} in {describe_wait(other)}{_took(facts.waited_s, ', {}')}: neither has "
            f"anybody at its other end{f'; {did}' if did else ''}",
        )
    verb, who = "never received it", "nobody" if first.peer is None else f"rank {first.peer}"
    if first.direction == "from":
        more = f" more than the {plural(facts.before, 'message')} before" if facts.before else ""
        verb = f"sent it {'anything' if first.peer is None else 'nothing'}{more}"
    return f"{head}{_took(facts.waited_s)}, and {who} {verb}: {did}", _left_out(facts)


def _left_out(facts: f.UnmatchedMessage) -> str:
    call = facts.left_out
    if call is None:
        return ""
    if facts.left_next:
        return f"In the rounds before, rank {call.rank} did."
    what = describe_wait(call)
    return f"Rank {call.rank} had left out {what} in one round, and gone on with what comes after it."


def _neighbour(facts: f.UnmatchedMessage, wait: f.CallFacts) -> str:
    verb = "sends to" if wait.direction == "to" else "receives from"
    plural_verb = "send to" if wait.direction == "to" else "receive from"
    whom = {1: "the next rank", facts.group_size - 1: "the rank before"}.get(
        facts.usual_distance, f"the rank {plural(facts.usual_distance, 'place')} further on"
    )
    others = name_ranks(facts.alike)
    return (
        f"rank {wait.rank} {verb} rank {wait.peer}{_at([wait])}, where {others} {plural_verb} {whom}, round and round"
    )


def _passing_by(facts: f.UnmatchedMessage, send: f.CallFacts, receive: f.CallFacts) -> str:
    differ = ["tags"] if send.tag != receive.tag else []
    differ += ["groups"] if send.group != receive.group else []

    def does(call: f.CallFacts, verb: str, peer: int) -> str:
        which = [f"with tag {call.tag}"] if "tags" in differ else []
        which += [f"in {call.group}"] if "groups" in differ else []
        return f"{' '.join([f'rank {call.rank} {verb} rank {peer}', *which])}{at([call.source])}"

    return (
        f"{does(send, 'sends to', receive.rank)}, and {does(receive, 'receives from', send.rank)}: the "
        f"{listing(differ)} differ, so both wait{_took(facts.waited_s, ', {} by now')}"
    )


# -- what came from outside, and the network


@_renders(f.Outside)
def _outside(facts: f.Outside) -> Words:
    if facts.what == "rank":
        return (f"{full_name(facts.ranks[0], facts.node)} was stopped by {facts.signal}",)
    return (f"{facts.node} {facts.how}{_ran_there(facts.ranks)}",)


@_renders(f.Cut)
def _cut(facts: f.Cut) -> Words:
    silent = f"nothing was acknowledged for at least {format_duration(facts.seconds)}"
    ways = [_one_way(way) for way in facts.one_way]
    if facts.how == "links":
        shown = [f"{pair}{way}" for pair, way in zip(_pairs(facts.links), ways, strict=True)]
        more = f" (and {len(shown) - _MOST_LINKS} more links)" if len(shown) > _MOST_LINKS else ""
        what = f"{silent} between {'; between '.join(shown[:_MOST_LINKS])}{more}"
    elif facts.how == "halves":
        parts = [listing(part) for part in facts.parts]
        sides = listing(parts) if len(facts.parts[0]) == 1 else " | ".join(parts)
        what = f"the network was cut between {sides}{ways[0] if len(ways) == 1 else ''}: {silent}"
    else:
        detail = {
            "": silent,
            "sent": "what it sent arrived, and nothing that was sent to it did",
            "received": "what was sent to it arrived, and nothing that it sent did",
        }[facts.direction]
        were = "was" if len(facts.nodes) == 1 else "were"
        what = f"{listing(facts.nodes)} {were} cut off from {listing(facts.parts[0])}: {detail}"
    return (f"{what}{_ran_there(facts.ranks)}",)


def _one_way(way: tuple[str, str] | None) -> str:
    return f" (what {way[0]} sent arrived, the answers of {way[1]} did not)" if way else ""


@_renders(f.Flap)
def _flap(facts: f.Flap) -> Words:
    where = "; ".join(_pairs(facts.links[:_MOST_LINKS]))
    if facts.nodes:
        rest = sorted({node for pair in facts.links for node in pair} - {*facts.nodes})
        where = f"{listing(facts.nodes)} and each of {listing(rest)}"
    count, least = len(facts.bursts_s), format_duration(min(facts.bursts_s))
    times = f"{count} times, each time for" if count > 1 else "for"
    step = f"; {facts.step} took {format_duration(facts.step_s)} meanwhile" if facts.step_s is not None else ""
    return (
        f"nothing was acknowledged between {where} {times} at least {least}, and then it came through{step}"
        f"{_ran_there(facts.ranks)}",
    )


@_renders(f.SlowLink)
def _slow_link(facts: f.SlowLink) -> Words:
    between = f"between {listing(_pairs(facts.links[:_MOST_LINKS]))}"
    if facts.nodes:
        between = f"between {listing(facts.nodes)} and the others"
    if facts.measure == "round_trip_s":
        what = (
            f"round trips {between} took up to {format_duration(facts.worst)}, between others at most "
            f"{format_duration(facts.rest)}"
        )
    elif facts.measure == "lost_share":
        what = (
            f"{plural(facts.segments, 'segment')} had to be sent again {between}, up to {facts.worst:.1%} of all, "
            f"between others {facts.rest:.2%}"
        )
    else:
        what = (
            f"data went {between} at {format_bytes(round(facts.worst))}/s, though there was more to send, and it was "
            f"read at once; between others at {format_bytes(round(facts.rest))}/s and more"
        )
    return (f"{what}{_ran_there(facts.ranks)}",)


@_renders(f.ConnectionReset)
def _connection_reset(facts: f.ConnectionReset) -> Words:
    how = "refused" if facts.refused else "reset"
    if facts.node:
        others = listing(sorted({node for pair in facts.links for node in pair} - {facts.node}))
        return (
            f"the connections of {facts.node} to {others} were {how} while all were there; {name_ranks(facts.ranks)} "
            "ran there",
        )
    return (
        f"the connection between {listing(_pairs(facts.links))} was {how} while both were there: it broke by itself",
    )


# -- runs that failed


def name_lost(facts: f.FirstFailure, when: str = " in mid-run") -> str:
    """How nodes were lost: `node1 was killed in mid-run`."""
    how = facts.how or "went away"
    if len(facts.nodes) > 1:
        how = how.replace("was ", "were ", 1).replace("its host", "their host")
    return f"{name_nodes(facts.nodes)} {how}{when}"


def render_missed(missed: f.Missed) -> str:
    """What a rank did that another one missed, in words that follow its name."""
    where = render_stood(missed.stood) if missed.stood else ""
    took = format_duration(missed.seconds)
    if missed.how == "exited":
        return f"exited early, with code {missed.code} after {took}, while others still needed it"
    if missed.how == "was_late":
        return f"was late: it was {where}"
    if missed.how == "left":
        return f"left the others while they still needed it, it was {where}"
    if missed.how == "never_came":
        was_at = f"; it was {where}" if where else ""
        return f"had not come to {missed.step} when rank {missed.victim} gave it up{was_at}"
    return f"came to {missed.step}{at([missed.source])} {took} after rank {missed.victim} had given it up"


def render_failure(facts: f.FirstFailure) -> str:
    """What whoever failed first did, in words that follow its name, if it is one rank."""
    if facts.what == "late" and facts.missed:
        return render_missed(facts.missed)
    if facts.what == "failed" and facts.end:
        return render_end(facts.end)
    if facts.what == "left":
        return render_missed(facts.missed) if facts.missed else f"ended with code {facts.code}"
    return f"was {render_place(facts.place)} and no longer with the others" if facts.place else ""


@_renders(f.FirstFailure)
def _first_failure(facts: f.FirstFailure) -> Words:
    if facts.what == "nodes_lost":
        head = f"{name_lost(facts)}; {name_ranks(facts.ranks)} ran there"
    elif facts.what == "node_lost":
        head = f"rank {facts.ranks[0]}'s node, {facts.node}, went away"
    else:
        head = f"{full_name(facts.ranks[0], facts.node)} {render_failure(facts)}"
    progress = _render_progress(facts.progress)
    hits = [f"{capital(_hit(hit))}." for hit in facts.hits[:_MOST_HITS]]
    return f"{head}, {progress}" if progress else head, *hits


def _hit(hit: f.Hit) -> str:
    ranks = [call.rank for call in hit.calls]
    failed = [call for call in hit.calls if call.error]
    if len(failed) == len(hit.calls) and not any(call.lost for call in hit.calls):
        return refusal(hit.name, hit.calls)
    return f"{name_ranks(ranks)} {was(ranks)} in {hit.name}{_at(hit.calls)}{' and failed there' if failed else ''}"


def render_went_alone(facts: f.WentAlone) -> str:
    """What a rank did that went on alone, in words that follow its name."""
    if facts.call is None:
        where = f" {render_place(facts.place)}" if facts.place else ""
        return f"went on alone{where} when {name_ranks(facts.others)} had ended with code 0"
    how = f" {_render_progress(facts.progress)}".rstrip()
    return (
        f"went on alone: it called {facts.step}{_at([facts.call])}, which {name_ranks(facts.others)} never "
        f"{'answered' if facts.message else 'called'}; they had ended with code 0{how}"
    )


@_renders(f.WentAlone)
def _went_alone(facts: f.WentAlone) -> Words:
    return (f"{full_name(facts.ranks[0], facts.node)} {render_went_alone(facts)}",)


@_renders(f.WorkerFailed)
def _worker_failed(facts: f.WorkerFailed) -> Words:
    whose = f", whose script started {name_ranks(facts.started)}," if facts.started else ""
    return (f"worker {facts.worker} ({facts.node}){whose} {render_end(facts.end)}",)


@_renders(f.LauncherEnded)
def _launcher_ended(facts: f.LauncherEnded) -> Words:
    said = f": {clip(facts.said, _LONGEST_LAST_WORDS)}" if facts.said else ""
    if not facts.failed:
        return (f"the launchers on {listing(facts.nodes)} had not started any rank{said}",)
    ended = f"was killed by {facts.signal}" if facts.signal else f"ended with code {facts.code}"
    when = "though no rank had failed" if facts.begun else "before any rank had started"
    return (f"the launcher on {facts.nodes[0]} {ended}, {when}{said}",)


def render_odd_call(facts: f.OddCall) -> str:
    """What a rank called that no other one did, in words that follow its name."""
    return f"called {facts.call}{at(facts.lines)} where most others called {facts.common}"


@_renders(f.OddCall)
def _odd_call(facts: f.OddCall) -> Words:
    return (f"rank {facts.ranks[0]} {render_odd_call(facts)}",)


# -- ranks that did not do the same


def _stuck(seconds: float | None) -> str:
    return "" if seconds is None else f"It went no further for {format_duration(seconds)}."


@_renders(f.Mismatch)
def _mismatch(facts: f.Mismatch) -> Words:
    number = f"call #{facts.number}" + (f" of {facts.group}" if facts.group else "")
    after = _again(facts.again), _stuck(facts.stuck_s)
    if not facts.odd_sides:
        sides = "; ".join(_by_side(facts.sides, "called"))
        head = f"in {number} ranks called different operations: {sides}"
        return head, "No majority tells which is wrong.", *after
    odd, others = listing(_by_side(facts.odd_sides, "called")), listing(_by_side(facts.sides, "called"))
    rhythm = f"Until then both did the same, over and over; {name_ranks(facts.ranks)} left that rhythm."
    return f"{odd} where {others} ({number})", rhythm if facts.by_rhythm else "", *after


@_renders_by_kind(f.Unequal)
def _unequal(facts: f.Unequal, kind: FindingKind) -> Words:
    sides = _by_side(facts.sides, _VERBS.get(kind.value, "brought"))
    lines = listing(facts.at)
    where = f" ({lines})" if lines else ""
    if facts.misfits:
        head = f"in {facts.step} {_misfits(facts.misfits)}{where}"
    elif facts.ranks:
        head = f"in {facts.step} {listing(sides[1:])}, where {sides[0]}{where}"
    else:
        head = f"in {facts.step} ranks do not agree: {'; '.join(sides)}{where}"
    wrong = ""
    if facts.wrong is not None:
        who = capital(name_ranks(facts.wrong_ranks))
        wrong = f"{who} came out of it with wrong values: {render_wrong(facts.wrong)}."
    return head, wrong, _again(facts.again), _stuck(facts.stuck_s)


def _misfits(misfits: Sequence[f.Misfit]) -> str:
    """`rank 0 gives rank 1 2 rows, where that one has room for 1`, for the first misfits of splits."""
    told = "; ".join(
        f"rank {one.giver} gives {f'rank {one.taker}' if one.taker != one.giver else 'itself'} "
        f"{plural(one.rows, 'row')}, where {'that one' if one.taker != one.giver else 'it'} has room for {one.room}"
        for one in misfits[:_MOST_MISFITS]
    )
    more = len(misfits) - _MOST_MISFITS
    return told + (f"; so it is between {plural(more, 'more pair')}" if more > 0 else "")


@_renders(f.Slipped)
def _slipped(facts: f.Slipped) -> Words:
    count, common = abs(facts.calls), name_ranks(facts.others)
    number = "one call" if count == 1 else plural(count, "call")
    it, are = ("they", "are") if len(facts.ranks) > 1 else ("it", "is")
    first, further = facts.call.name + _at([facts.call]), count - 1
    rest = f" and the {f'{further} calls' if further > 1 else 'call'} after it" if further else ""
    left_out = facts.calls > 0
    did = f"left out {first}{rest}" if left_out else f"called {first}{rest} once more than {common}"
    where = f"{'ahead of' if left_out else 'behind'} {common}"
    again = f" in round {facts.turn}" if facts.turn else ""
    head = f"{name_ranks(facts.ranks)} {are} {number} {where}:{again} {it} {did}"
    return head, f"From {facts.met_off} on they met {number} off." if facts.met_off else ""


def _made(sides: Iterable[f.Side]) -> list[str]:
    return together((rank, f"made {side.what}{at(side.lines[:1])}") for side in sides for rank in side.ranks)


@_renders(f.GroupsDiffer)
def _groups_differ(facts: f.GroupsDiffer) -> Words:
    if facts.common is None:
        turn = ordinal(facts.number)
        head = f"the {turn} new_group of ranks was not for the same group: {'; '.join(_made(facts.sides))}"
        return head, _GROUP_RULE
    return f"{listing(_made(facts.sides))} {_as_their_group(facts)}", _GROUP_RULE


def _as_their_group(facts: f.GroupsDiffer) -> str:
    whose, common = "its" if len(facts.ranks) == 1 else "their", facts.common
    made = f"made {common.what}{at(common.lines[:1])}" if common else ""
    slip = {"": "", "left_out": f": {name_ranks(facts.ranks)} left that one out", "added": ", a group more"}
    return f"as {whose} {ordinal(facts.number)} group, where {name_ranks(facts.others)} {made}{slip[facts.slip]}"


@_renders(f.GroupNotMade)
def _group_not_made(facts: f.GroupNotMade) -> Words:
    return (
        f"{name_ranks(facts.ranks)} {_never_called(facts)}",
        f"{capital(name_ranks(facts.others))} waited there {format_duration(facts.seconds)}, at {listing(facts.at)}; "
        f"{listing(_did(facts.did))}.",
    )


def _never_called(facts: f.GroupNotMade) -> str:
    return f"never called new_group for [{', '.join(map(str, facts.members))}]"


@_renders(f.GroupDestroyed)
def _group_destroyed(facts: f.GroupDestroyed) -> Words:
    if not facts.alone:
        return (f"{name_ranks(facts.gone)} {_destroyed(facts)}",)
    it, used = "it" if len(facts.entered) == 1 else "they", listing(facts.used_at)
    return (
        f"{name_ranks(facts.entered)} went on alone: {it} called {facts.step} at {used}, when "
        f"{name_ranks(facts.gone)} had destroyed {_group(facts)} at {listing(facts.destroyed_at)}",
    )


def _group(facts: f.GroupDestroyed) -> str:
    return f"group {facts.group}" if facts.group else "the default group"


def _destroyed(facts: f.GroupDestroyed) -> str:
    verb = "failed" if facts.failed else f"waited {format_duration(facts.waited_s)}"
    return (
        f"destroyed {_group(facts)} at {listing(facts.destroyed_at)}, where {name_ranks(facts.entered)} still used it "
        f"and {verb} in {facts.step} at {listing(facts.used_at)}; {listing(_did(facts.did))}"
    )


def _did_to_groups(facts: f.Facts) -> str:
    """What one rank did to groups, in words that follow its name; empty where it is about several ranks."""
    if len(facts.ranks) != 1:
        return ""
    if isinstance(facts, f.GroupsDiffer) and facts.common:
        side = facts.sides[0]
        return f"made {side.what}{at(side.lines[:1])} {_as_their_group(facts)}"
    if isinstance(facts, f.GroupNotMade):
        return _never_called(facts)
    return _destroyed(facts) if isinstance(facts, f.GroupDestroyed) and not facts.alone else ""


@_renders(f.Rendezvous)
def _rendezvous(facts: f.Rendezvous) -> Words:
    there, world = f"the store at {facts.address} is there", facts.world_size
    said = listing(together((rank, side.what) for side in facts.sides for rank in side.ranks))
    if facts.how == "addresses":
        silent = f"None answered {name_ranks(facts.silent)}." if facts.silent else ""
        return f"ranks looked for the store of the rendezvous at different addresses: {said}", silent
    if facts.how == "unanswered":
        than = f", where {name_ranks(facts.met)} found one" if facts.met else ""
        why = f" ({facts.error})" if facts.error else ""
        return (f"no store answered {name_ranks(facts.silent)} at {facts.address}{than}{why}",)
    if facts.how == "sizes":
        sizes = listing(f"{name_ranks(one.ranks)} expected {plural(int(one.what), 'rank')}" for one in facts.sides)
        return (f"{there}, but ranks do not agree how many they are: {sizes}",)
    if facts.how == "same_rank":
        double = listing(f"{name_ranks(side.ranks)} all said to be rank {side.what}" for side in facts.sides)
        return (f"{there}, but {double}",)
    if facts.how == "beyond":
        told = listing(f"rank {side.ranks[0]} said to be rank {side.what}" for side in facts.sides)
        return (f"{there}, but {told} of a world of {world}: there are ranks 0 to {world - 1}",)
    if facts.how == "unconnected":
        met = "each other" if len(facts.stuck) == len(facts.met) else "the others"
        return (
            f"{there} and all {plural(world, 'rank')} came to it; {name_ranks(facts.stuck)} did not get connected to "
            f"{met}",
        )
    why = f"this run has {plural(facts.run_size, 'rank')}"
    if world <= facts.run_size:
        absent = name_ranks(one.rank for one in facts.absent)
        why = f"{absent} did not come to it ({listing(_did(facts.absent))})"
    peers = "peers are" if facts.missing > 1 else "a peer is"
    return (f"{there}, but {peers} missing: {name_ranks(facts.met)} expected {plural(world, 'rank')}, and {why}",)


@_renders(f.PhaseCounts)
def _phase_counts(facts: f.PhaseCounts) -> Words:
    first, second, number = facts.first, facts.second, facts.number
    if facts.phase == "forward":
        joint = "and" if facts.did else "but"
        sides = together(
            (rank, f"ran {plural(facts.forwards[rank], 'forward')} {joint} {plural(facts.backwards[rank], 'backward')}")
            for rank in first
        )
        one, none = ("one", "none") if facts.did else ("none", "one")
        what = f"{one} followed forward {number}, after which {name_ranks(second)} ran {none}"
        return (f"{'; '.join(sides)}: {what}",)

    def exchanged(rank: int) -> str:
        return f"exchanged gradients in {facts.exchanged[rank]} of {plural(facts.backwards[rank], 'backward')}"

    sides = [piece for side in (first, second) for piece in together((rank, exchanged(rank)) for rank in side)]
    did, others = ("did", "did not") if facts.did else ("did not", "did")
    what = f"in backward {number} {name_ranks(first)} {did}, and {name_ranks(second)} {others}"
    return (f"{'; '.join(sides)}: {what}",)


# -- wrong though nothing fails


def render_wrong(wrong: f.WrongElement) -> str:
    """What stands where: `element 0 holds 7.0 and should hold 6.0`."""
    of = f" of its {ordinal(wrong.tensor + 1)} tensor" if wrong.tensors > 1 else ""
    if wrong.element is None:
        tensor = f"the {ordinal(wrong.tensor + 1)} tensor of rank" if of else "rank"
        than = "what was brought can give" if wrong.reduces else "was given"
        return f"{tensor} {wrong.rank} {'is' if of else 'holds'} another tensor than {than}"
    where = f"element {wrong.element}{of} on rank {wrong.rank}"
    return f"{where} is {_number(wrong.got)} and should be {_number(wrong.expected)}"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@_renders(f.WrongResult)
def _wrong_result(facts: f.WrongResult) -> Words:
    head = (
        f"{facts.step}{at(facts.at)} did not give {name_ranks(facts.wrong_ranks)} what it should have: "
        f"{render_wrong(facts.first)}"
    )
    why = ""
    if facts.handles and facts.waits_at:
        what = f"{capital(name_ranks(facts.ranks))} changed a tensor" if facts.ranks else "A tensor was changed"
        lines = listing(facts.waits_at)
        why = f"{what} between the call and the wait for its handle at {lines}, before it was done."
    elif facts.handles:
        why = "A tensor was changed before the call was done: nobody waited for its handle."
    elif facts.alike:
        why = f"All {facts.alike} tensors that it filled hold the same, as if they were one."
    return head, why, _again(facts.again)


@_renders(f.OddValues)
def _odd_values(facts: f.OddValues) -> Words:
    who, where = name_ranks(facts.ranks), f"{facts.step}{at(facts.at)}"
    if facts.how == "nan":
        return (f"{who} brought NaN to {where}, the first NaN on record; who gets its result gets NaN",)
    if facts.how == "far":
        return (
            f"{who} brought values up to {facts.value:.3g} to {where}, where the others brought at most "
            f"{facts.rest:.3g}, and all at most {facts.usual:.3g} to the {plural(facts.steps, 'step')} before it; who "
            "gets its result gets that",
        )
    return (
        f"{who} brought other values than the others to {where}, where all brought the same to each of "
        f"{plural(facts.steps, 'other step')}; who gets its result gets that",
    )


@_renders(f.SameValues)
def _same_values(facts: f.SameValues) -> Words:
    what = f"each of {plural(facts.steps, facts.op)}" if facts.steps > 1 else facts.step
    why = "all of them have the same data, or what they bring has been reduced before"
    if facts.others_differ:
        why = "what they bring has been reduced before, or all of them have the same data"
    phase = " of gradients" if facts.gradients else ""
    return (f"{name_ranks(facts.others)} brought the same values to {what}{phase}{at(facts.at)}: as if {why}",)


@_renders(f.Replicas)
def _replicas(facts: f.Replicas) -> Words:
    title, ranks = f"the DDP module{at(facts.at)}", name_ranks(facts.ranks)
    if facts.how == "parameters":
        extra = ""
        if facts.only_here:
            extra = f"; {_names(facts.only_here, 3)} only on {ranks}"
        return (f"the replicas of {title} are not alike: {_have(facts.sides)}{extra}",)
    if facts.how == "parameter":
        have = _have(facts.sides)
        return (f"the replicas of {title} are not alike: as {ordinal(facts.place)} parameter {have}",)
    if facts.how == "order":
        return (
            f"the replicas of {title} have the same parameters in another order: as {ordinal(facts.place)} "
            f"{_have(facts.sides)}",
            "DDP goes by their number, so gradients of different parameters were added up.",
        )
    if facts.how == "norm":
        why = ""
        if facts.unused_forward:
            why = "The forward of the module was never called: what it holds was called past it."
        elif facts.no_exchange:
            why = "No backward had exchanged gradients."
        return (
            f"after {plural(facts.steps, 'optimizer step')} the replicas of {title} are no longer the same: the norm "
            f"of {facts.parameter} is {_on(facts.sides)}",
            why,
        )
    never = [rank for rank in (*facts.ranks, *facts.others) if rank not in facts.stepped]
    return (
        f"{name_ranks(facts.stepped)} stepped the parameters of {title}{at(facts.stepped_at)}, and "
        f"{name_ranks(never)} never did, where all exchanged their gradients: the replicas are no longer the same",
    )


def _names(names: Sequence[str], most: int) -> str:
    return listing(names[:most]) + (", …" if len(names) > most else "")


@_renders(f.WeightsApart)
def _weights_apart(facts: f.WeightsApart) -> Words:
    return (
        f"{name_ranks((*facts.ranks, *facts.others))} train by the same gradients, reduced at "
        f"{listing(facts.reduced_at)}, but not the same weights: after {plural(facts.steps, 'step')} of the optimizer"
        f"{at(facts.stepped_at)} the norm of its {ordinal(facts.place)} parameter is {_on(facts.sides)}",
    )


# -- what is true of every run


@_renders(f.Straggler)
def _straggler(facts: f.Straggler) -> Words:
    if facts.often:
        how = f"came last to {facts.last} of the {plural(facts.steps, 'step')} in which anybody waited, and"
    else:
        ends = dict.fromkeys(map(format_duration, (facts.least_s, facts.most_s)))
        usual = f", where {format_duration(facts.usual_s)} is usual" if facts.usual_s >= NOISE_S / 2 else ""
        by = f"by {' to '.join(ends)} at {facts.last} of {plural(facts.steps, 'step')}{usual}, which"
        how = f"was late now and then: {by}" if facts.seldom else f"was late {by}"
    each = " each" if len(facts.others) > 1 else ""
    head = (
        f"rank {facts.ranks[0]} {how} cost {name_ranks(facts.others)} {format_duration(facts.each_s)}{each}, "
        f"{facts.share:.0%} of the time"
    )
    if facts.turns:
        head += f": {format_duration(facts.each_s / facts.turns)} in each of {plural(facts.turns, 'training step')}"
    collected = ""
    if facts.collected_in:
        ran = format_duration(facts.collected_s)
        collected = f"Its garbage collector ran for {ran} of that, in {facts.collected_in} of them."
    return head, f"It entered them at {facts.lines[0]}." if facts.lines else "", collected


@_renders(f.TimeShares)
def _time_shares(facts: f.TimeShares) -> Words:
    head = f"where the time went: {'; '.join(map(_share, facts.shares))}"
    if len(facts.shares) > _MOST_SHARES:
        most = max(facts.shares, key=lambda share: share.waiting)
        least = min(facts.shares, key=lambda share: share.waiting)
        head = f"most waiting: {_share(most)}; least: {_share(least)}"
    hidden = format_duration(facts.hidden_s)
    return head, f"Up to {hidden} of communication ran beside the ranks' own work." if facts.hidden_s > NOISE_S else ""


def _share(share: f.TimeShare) -> str:
    parts = {"own work": share.own, "waiting": share.waiting, "communication": share.communicating}
    if share.unknown > NOISE_S:
        parts["not known"] = share.unknown
    told = ", ".join(f"{value / share.total:.0%} {name}" for name, value in parts.items())
    return f"rank {share.rank} {told} of {format_duration(share.total)}"


@_renders(f.CriticalPath)
def _critical_path(facts: f.CriticalPath) -> Words:
    since = ", from the last new_group on" if facts.from_new_group else ""
    parts = listing(f"{part.share:.0%} was {describe_part(part)}" for part in facts.parts)
    return (f"the critical path{since}: of {format_duration(facts.total_s)}, {parts}",)


def describe_part(part: Any) -> str:
    """`rank 1's own work before all_reduce at train.py:12`, `communication in all_reduce at train.py:12`."""
    place = f"{part.op}{at([part.source])}"
    if part.rank is None:
        return f"communication in {place}"
    return f"rank {part.rank}'s own work {f'before {place}' if part.op else 'after its last call'}"


@_renders(f.Account)
def _account(facts: f.Account) -> Words:
    if not facts.collectives and not facts.messages:
        return ("no rank called a collective or sent a message",)
    counts = [plural(facts.collectives, "collective")] if facts.collectives else []
    counts += [plural(facts.messages, "message")] if facts.messages else []
    took = f" in {format_duration(facts.seconds)}" if facts.timed else ""
    head = (
        f"{name_ranks(facts.others)} entered {listing(counts)}{took} and brought {format_bytes(facts.brought_bytes)} "
        "to them"
    )
    return head, {"": _standing_out(facts), "stepped": _STEPPED, "dumped": _DUMPED}[facts.untimed]


def _standing_out(facts: f.Account) -> str:
    what = facts.standing_out + at(facts.at)
    if facts.longest_s:
        late = f", {format_duration(facts.late_s)} of it until rank {facts.late_rank} came"
        return f"The longest was {what}: {format_duration(facts.longest_s)}{late if facts.late_s else ''}."
    return f"The largest was {what}: {format_bytes(facts.largest_bytes)} a rank." if facts.largest_bytes else ""


@_renders(f.ThreadEnded)
def _thread_ended(facts: f.ThreadEnded) -> Words:
    ranks = len(facts.others)
    many = "a thread" if facts.count == 1 else "threads" if facts.count == ranks else plural(facts.count, "thread")
    them = "it" if facts.count == 1 else "them"
    head = f"{many} of {name_ranks(facts.others)} {_raised(facts.raised)}, and the script went on without {them}"
    return (head,)


@_renders(f.BackendNamed)
def _backend_named(facts: f.BackendNamed) -> Words:
    where = at(clip(line, _LONGEST_BACKEND) for line in facts.at)
    who = f"{name_ranks(facts.others)} named {clip(facts.named, _LONGEST_BACKEND)}{where}"
    if facts.instead:
        return (f"{who}, and got {facts.backend} instead, as was asked for",)
    return (f"{who}, and kept it; the scenario says {facts.backend}",)


@_renders(f.AttemptEnded)
def _attempt_ended(facts: f.AttemptEnded) -> Words:
    return (name_attempt(facts.number, facts.world_size, facts.seconds, facts.reason),)


def name_attempt(number: int, world_size: int, seconds: float | None, reason: str) -> str:
    """One attempt: `attempt 0, 3 ranks, 1.2 s: rank 1 (node1) raised ValueError`."""
    took = "" if seconds is None else f", {format_duration(seconds)}"
    size = f", {plural(world_size, 'rank')}" if world_size else ""
    return f"{name_attempts([number])}{size}{took}: {reason.removesuffix('.')}"


@_renders(f.StartedByScript)
def _started(facts: f.StartedByScript) -> Words:
    if facts.by_worker:
        who = listing(f"{name_ranks(ranks)} by worker {worker}" for worker, ranks in facts.by_worker.items())
        return (
            f"the script started the ranks itself: {who}",
            "What they print is in the log of their worker (lab logs --rank, with the number of the worker), unless "
            "they were given pipes of their own.",
        )
    beside = "in other groups than the one that is told here" if facts.any_ranks else "in groups of their own"
    workers = listing(f"worker {worker}" for worker in facts.aside_workers)
    return (
        f"{plural(facts.aside, 'process', 'processes')} more that {workers} started met {beside}: they are not told as "
        "ranks; what they called is in trace/process*.jsonl",
    )


# -- DistributedDataParallel


def _size(size: int) -> str:
    return format_bytes(size)


_DDP: Mapping[str, Callable[[f.DdpStory], Words]] = {
    "ddp_counted": lambda one: (
        f"DDP() at {one.made_at}: every rank tells how many parameters it has"
        f"{f', here {one.parameters}' if one.parameters is not None else ''} ({listing(one.what)})",
        "Where the numbers differ, DDP raises instead of hanging later.",
    ),
    "ddp_verified": lambda one: (
        f"Rank 0 sends the sizes and strides of its parameters ({listing(one.what)}), and every rank compares them "
        "with its own",
    ),
    "ddp_state": lambda one: (
        f"Rank 0's {_state(one)} replace everybody's: {_size(one.bytes)} in {plural(one.count, 'broadcast')}",
        "DDP joins tensors of a dtype into pieces of up to 250 MiB.",
    ),
    "ddp_buffers": lambda one: (
        f"In {one.count} of {plural(one.of, 'forward')} rank 0's buffers replace everybody's ({listing(one.what)}): "
        "BatchNorm's running statistics, for example",
        "broadcast_buffers=False turns that off.",
    ),
    "ddp_reduced": lambda one: (
        f"{plural(one.number, 'backward')} added up gradients over all ranks, a call for each bucket as soon as it is "
        "full",
        f"{'It' if one.number == 1 else 'The last'} had {plural(one.count, 'bucket')}"
        f"{f', the first {one.first}' if one.first != one.count else ''}: {'; '.join(one.what)}"
        f"{f'; {one.more} more' if one.more else ''}.",
    ),
    "ddp_compressed": lambda one: (
        f"The buckets travel as {one.dtype}, {_size(one.bytes)} instead of {_size(one.before)}: a communication hook "
        "compresses them, and the gradients come back rounded",
    ),
    "ddp_rebuilt": lambda one: (
        "The first backward with gradients to reduce showed in which order they become ready",
        f"In forward {one.number} rank 0 sends its order ({listing(one.what)}), and the buckets are rebuilt by it: "
        + (
            f"{plural(one.count, 'bucket')} instead of {one.before}."
            if one.before != one.count
            else f"still {plural(one.count, 'bucket')}."
        ),
    ),
    "ddp_overlap": lambda one: (
        (
            "With one bucket, full only when the last gradient is ready, nothing of its all_reduce can run beside the "
            f"computation: {format_duration(one.step_s)} a step",
        )
        if one.single_bucket
        else (
            f"{one.share:.0%} of the time of these calls passed while gradients were still being computed",
            f"For the rest, {format_duration(one.step_s)} a step, backward had nothing else to do.",
        )
    ),
    "ddp_unused": lambda one: (
        f"With find_unused_parameters each backward also adds up who used which parameter ({listing(one.what)}, a "
        "number for each parameter): one that no rank used keeps its gradient as it was",
    ),
    "ddp_other": lambda one: (
        f"{plural(one.count, 'call')} in backward carried no whole bucket ({listing(one.what)}): a communication hook "
        "sends something else, or they are SyncBatchNorm's or the script's own",
    ),
    "ddp_silent": lambda one: (
        f"{one.count} of {plural(one.of, 'backward')} sent nothing: under no_sync() gradients are only added up "
        "locally",
    ),
}


def _state(one: f.DdpStory) -> str:
    if one.with_buffers:
        return "parameters and buffers"
    return f"{one.parameters} parameters" if one.parameters else "parameters"


@_renders_by_kind(f.DdpStory)
def _ddp_story(facts: f.DdpStory, kind: FindingKind) -> Words:
    head, *rest = _DDP[kind.value](facts)
    where = f"DDP module {facts.module} ({facts.made_at}): " if facts.module else ""
    return f"{where}{head}", *rest


# -- the reason of a verdict


def hang_reason(
    time_given: str,
    heads: Sequence[str],
    absent: Iterable[tuple[int, f.Stood]],
    waiting: Iterable[tuple[int, f.Stood]],
    gone: Iterable[tuple[int, str]],
) -> str:
    """Why a run hung: what was found, where ranks were, and what those did that had ended."""
    clauses = [
        *heads,
        *together((rank, f"was {render_stood(stood)}") for rank, stood in absent),
        *together((rank, f"waited {render_stood(stood)}") for rank, stood in waiting),
        *together(gone),
    ]
    return f"no end after {time_given}: {'; '.join(clauses)}"


def node_reason(facts: f.FirstFailure, *, launcher: bool) -> str:
    """Why a run failed that lost nodes."""
    met = ", and the launcher's processes met there" if launcher else ""
    return f"{name_lost(facts)}; {name_ranks(facts.ranks)} ran there{met}"


def odd_call_reason(found: Finding, rank: int, node: str, victim: int, end: f.End | None) -> str:
    """Why a run failed in which a rank called something else than most others; who failed then, if that is another."""
    did = _did_to_groups(found.facts) if found.kind is FindingKind.GROUPS else ""
    did = did or f"did not call what the others called: {found.headline}"
    then = f"; {then_failed(victim, end)}" if end is not None else ""
    return f"{full_name(rank, node)} {did}{then}"


def further_cause(finding: Finding) -> str:
    """A further cause, as a clause."""
    return f"besides, {finding.headline}"


def story_of_attempts(last: Any, attempts: Sequence[Any], used_up: int) -> str:
    """The reason of the last of several attempts, with what ended those before it."""
    earlier, restarts = attempts[:-1], plural(len(attempts) - 1, "restart")
    told = [*map(_ended, earlier), last.summary or last.reason]
    if last.verdict == "passed":
        return f"after {restarts}: {_ends(attempts)}; then {last.reason}"
    end = ""
    if used_up:
        end = f"; all {used_up} restarts that max_restarts allows are used up"
        end = "; the restart that max_restarts: 1 allows is used up" if used_up == 1 else end
    if last.culprit is not None and len({clip_middle(one, _LONGEST_ATTEMPT) for one in told}) == 1:
        return f"in each of {len(attempts)} attempts, {last.reason}{end}"
    return f"in attempt {len(earlier)}, after {restarts}, {last.reason}; before that, {_ends(attempts)}{end}"


def _ends(attempts: Sequence[Any]) -> str:
    """What ended each attempt but the last, the same in several of them once."""
    found: dict[str, list[int]] = {}
    for attempt, following in pairwise(attempts):
        if attempt.culprit is not None or attempt.verdict != "error":
            found.setdefault(f"{_ended(attempt)} in", []).append(attempt.number)
            continue
        resized = attempt.world_size != following.world_size  # not all that were to meet need have begun
        size = f" with {plural(following.world_size, 'rank')}" if resized else ""
        found.setdefault(f"the launcher began anew{size}, though nobody had failed, after", []).append(attempt.number)
    told = [f"{what} {name_attempts(numbers)}" for what, numbers in found.items()]
    more = len(told) - _MOST_CLAUSES
    return listing([*told[:_MOST_CLAUSES], f"{more} more"] if more > 1 else told)


def _ended(attempt: Any) -> str:
    """What ended an attempt, as a clause: `rank 1 raised ValueError: no at train.py:31`."""
    return clip_middle(attempt.summary or attempt.reason, _LONGEST_ATTEMPT)


def replaced_reason(duration_s: float, came: Sequence[str]) -> str:
    """How an attempt ended that its launcher ended, and none of its ranks."""
    after = format_duration(duration_s)
    if came:
        return f"ended after {after}: {listing(came)} came, and the launcher began anew with it"
    return f"interrupted after {after}: the launcher began the workers anew, and none had failed"


def outlived_reason(ranks: int, duration_s: float, rank: int, node: str, end: f.End, more: int) -> str:
    """The reason of a run that passed though ranks failed: the workers that had started them did not mind."""
    others = f" (and {more} more)" if more else ""
    return (
        f"what started {plural(ranks, 'rank')} ended as expected in {format_duration(duration_s)}, though "
        f"{full_name(rank, node)} {render_end(end)}{others}"
    )


def way_to_ship(path: Any, folder: Any) -> str:
    """What to do about a module that is a file of the person's own, and was not shipped."""
    return (
        f"; {path} was not shipped: nodes get the folder of the script, {folder}, without what .labignore names there "
        "and without hidden folders: put it into that"
    )


def then_failed(rank: int, end: f.End) -> str:
    """How another rank failed after what a verdict begins with."""
    return f"rank {rank} then {render_end(end)}"


def failed_alone(end: f.End) -> str:
    """How a rank failed that went on alone, behind that."""
    return f": it {render_end(end)}"


def no_such_rank(peer: int) -> str:
    """Why a message failed, behind that."""
    return f": there is no rank {peer}"


def before_that(finding: Finding) -> str:
    """What ranks had done before one failed, behind that."""
    return f"; before that, {finding.headline}"
