"""What the kernel finds, with the words for it, and the reason of a verdict. Nothing reads those words.

What a feature finds is in that feature, in the same form. What is said of runs in which nothing went wrong is in
`lab.diagnosis.reasons`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from lab import words
from lab.diagnosis import finding as f
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words, group_ranks
from lab.words import (
    capitalize_first,
    clip_end,
    format_bytes,
    format_count,
    format_duration,
    format_limit,
    join_words,
    name_ranks,
    was_or_were,
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
        f"{name_ranks(ours)} {was_or_were(ours)}{what[3:]}" if what.startswith("was ") else f"{name_ranks(ours)} {what}"
        for what, ours in group_ranks(dict(clauses)).items()
    ]


def at(lines: Iterable[str]) -> str:
    """` at train.py:4 and train.py:9`; nothing where no line is known."""
    known = join_words(lines)
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
    place = render_place(stood.place) if stood.place else ""
    if stood.state == "leaving":
        thread = f": a thread of it was {render_place(stood.thread)}" if stood.thread else ""
        return f"done, but did not end{f': it was {place}' if place else thread}"
    after = f", after a thread of it had {render_raised(stood.raised)}" if stood.raised else ""
    return (place or "in code without a Python stack") + after


def render_raised(raised: f.ThreadError) -> str:
    """`raised OSError: no at load.py:7`."""
    return f"raised {clip_end(raised.error.partition(chr(10))[0], _LONGEST_THREAD_ERROR)}{at([raised.at])}"


def render_end(end: f.End) -> str:
    """`raised ValueError: ... at train.py:30`."""
    place, where = (f" {render_place(end.place)}", f" at {end.place.at}") if end.place else ("", "")
    held = f"it held {format_bytes(end.held_bytes)}" if end.held_bytes else ""
    limit = f"its node's limit is {format_limit(end.limit_bytes)}" if end.limit_bytes else ""
    if (seen := end.last_seen) is not None and not place:
        place = f", last seen {'after' if seen.ended else 'in'} {seen.name}{at([seen.source])}"
    expected = f", expected {end.expected_code}," if end.expected_code else ""
    sizes = ", ".join(filter(None, [held, limit]))
    return {
        "memory": f"was killed for lack of memory{place}{': ' if sizes else ''}{sizes}",
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
    if progress is None or not progress.calls:
        return "" if progress is None else "before its first call"
    where = progress.name + at([progress.source])
    return (
        f"in {where}"
        if progress.unfinished
        else f"after {format_count(progress.calls, 'call')}, the last of them {where}"
    )


def _refusal(title: str, calls: Sequence[f.CallFacts]) -> str:
    """That calls failed: `reduce #2 at train.py:4 was refused to rank 1 (why)`."""
    happened = "failed on" if any(call.lost for call in calls) else "was refused to"
    ranks, why = name_ranks(call.rank for call in calls), clip_end(calls[0].error, _LONGEST_REFUSAL)
    return f"{title}{_at(calls)} {happened} {ranks} ({why})"


def again(count: int) -> str:
    """That the same happened in other steps; empty where it did not."""
    return f"So it was in {format_count(count, 'other step')}, too." if count else ""


def render_waited(seconds: float | None, around: str = " {}") -> str:
    """How long ranks had been waiting, in words around it; empty where no clock tells."""
    return "" if seconds is None else around.format(format_duration(seconds))


def ran_there(ranks: Sequence[int]) -> str:
    """Who ran on the nodes that a clause is about, behind that; empty where nobody did."""
    return f"; {name_ranks(ranks)} ran there" if ranks else ""


def render_ring(ring: Sequence[int]) -> str:
    """`0 → 1 → 0`."""
    return " → ".join(map(str, (*ring, ring[0])))


def render_wrong(wrong: f.WrongElement) -> str:
    """What stands where: `element 0 on rank 1 is 7 and should be 6`."""
    of = f" of its {words.format_ordinal(wrong.tensor + 1)} tensor" if wrong.tensors > 1 else ""
    if wrong.element is None:
        tensor = f"the {words.format_ordinal(wrong.tensor + 1)} tensor of rank" if of else "rank"
        than = "what was brought can give" if wrong.reduces else "was given"
        return f"{tensor} {wrong.rank} {'is' if of else 'holds'} another tensor than {than}"
    got, expected = (
        f"{value:.6g}" if isinstance(value, float) else str(value) for value in (wrong.got, wrong.expected)
    )
    return f"element {wrong.element}{of} on rank {wrong.rank} is {got} and should be {expected}"


# -- runs that did not end


class MissedStep(Finding):
    """A step that some ranks waited in and others never entered."""

    waits: tuple[f.CallFacts, ...]
    missing: tuple[int, ...]
    unknown: tuple[int, ...] = ()
    """Ranks that may have come to it: they left no dump."""
    message: bool = False
    receives: bool = False
    did: tuple[f.Activity, ...] = ()
    """What the missing ranks did."""
    refused: tuple[f.CallFacts, ...] = ()
    """Where it failed for all missing ranks: their calls."""
    several_groups: bool = False
    """Whether the missing ranks were in a collective of another group."""
    untold_messages: tuple[int, ...] = ()
    """Of dumps: missing ranks that may have waited for a message."""

    def render(self) -> Words:
        """Who never entered it, who waited there, and what the missing ones did."""
        who, lines = name_ranks(call.rank for call in self.waits), _at(self.waits)
        dump = f"there is no dump of {'them' if len(self.unknown) > 1 else 'it'}."
        unknown = f"Whether {name_ranks(self.unknown)} came to it is not known: {dump}" if self.unknown else ""
        if not self.missing:
            return f"{who} waited in {self.step}{lines}", unknown
        there = render_waited(self.seconds, " {}," if lines else " {}") + lines
        whom, did = name_ranks(self.missing), join_words(describe_activities(self.did))
        head, rest = f"{whom} never entered {self.step}", f"{capitalize_first(who)} waited there{there}; {did}."
        if self.refused:
            head = _refusal(self.step, self.refused)
        elif self.message:
            verb = "sent" if self.receives else "received"
            head = f"{who} waited in {describe_call(self.waits[0])}{there}: {whom} never {verb}"
            rest = f"{capitalize_first(did)}."
        untold = f"If {name_ranks(self.untold_messages)} waited for a message, these dumps do not tell it."
        order = _GROUP_ORDER if self.several_groups else ""
        return head, rest, unknown, order, untold if self.untold_messages else ""


class Ring(Finding):
    """Ranks that wait for each other in a ring."""

    kind: Kind = FindingKind.DEADLOCK
    cycle: tuple[int, ...]
    waits: tuple[f.CallFacts, ...]
    all_of: Literal["collectives", "receives", "sends", "mixed"] = "mixed"
    """What the calls in the ring are."""
    groups: tuple[f.Side, ...] = ()
    """The groups of the ring's collectives, and where they were made."""

    def render(self) -> Words:
        """The ring, what each of its ranks waits in, and what the program has to do."""
        each = join_words(join_ranks((call.rank, f"in {describe_wait(call)}") for call in self.waits))
        ranks = name_ranks(call.rank for call in self.waits)
        lines = join_words(f"{group.what} at {group.lines[0]}" for group in self.groups)
        advice = {
            "collectives": _GROUP_ORDER + (f" Groups were made here: {lines}." if lines else ""),
            "receives": "All of them receive before they send: one has to send first.",
            "sends": "All of them send before they receive: one has to receive first.",
            "mixed": "None of these calls can end before another one does.",
        }
        took = render_waited(self.seconds, ", for {} now")
        return f"{ranks} wait for each other in a ring ({render_ring(self.cycle)}){took}: {each}", advice[self.all_of]


def _alone(place: f.CodePlace | None, gone: Iterable[int]) -> str:
    where = f" {render_place(place)}" if place else ""
    return f"went on alone{where} when {name_ranks(gone)} had ended with code 0"


class StoodApart(Finding):
    """Who kept the others waiting, by the stacks of all."""

    how: Literal["absent", "alone", "gone", "odd"]
    waited: bool = False
    """Of one that was absent: whether the others waited in a collective."""
    stood: f.Stood | None = None
    common: f.Stood | None = None
    """Where most others were."""
    place: f.CodePlace | None = None

    def render(self) -> Words:
        """What the rank did."""
        return f"rank {self.ranks[0]} {self.what_it_did()}"

    def what_it_did(self) -> str:
        """It did not come, went on alone, ended early, or stood elsewhere."""
        stood = render_stood(self.stood) if self.stood else ""
        absent = "did not come to the collective that others waited in, it " if self.waited else ""
        return {
            "absent": f"{absent}was {stood}",
            "alone": _alone(self.place, self.others),
            "gone": "exited early, with code 0, while others waited for it",
            "odd": f"was {stood} while others were {render_stood(self.common) if self.common else ''}",
        }[self.how]


class InFlight(Finding):
    """A step that everybody entered and that did not end."""

    kind: Kind = FindingKind.IN_FLIGHT
    entered: tuple[int, ...] | None = None
    """Of dumps: who is known to have entered it; None: everybody."""
    sources: tuple[str, ...] = ()

    def render(self) -> Words:
        """Who entered it, and who never came out of it."""
        lines = at(self.sources)
        there = (render_waited(self.seconds, "{}," if lines else "{}") + lines).strip()
        who = "everybody" if self.entered is None else name_ranks(self.entered)
        entered = f"{who} entered {self.step}, and {name_ranks(self.others)} never came out of it"
        return f"{entered}{f' ({there})' if there else ''}: the data did not arrive, or there was no time left for it"


class Activities(Finding):
    """What ranks did, where no step tells more."""

    did: tuple[f.Activity, ...]
    longest_s: float | None = None
    """How long the longest wait was, where the time was up while ranks were at work."""

    def render(self) -> Words:
        """What each rank did, and what that means."""
        did = join_words(describe_activities(self.did))
        match self.kind:
            case FindingKind.OUT_OF_TIME:
                longest = format_duration(self.longest_s or 0.0)
                head = f"the time was up while the ranks were at work: nobody had waited longer than {longest}"
                return head, f"{capitalize_first(did)}."
            case FindingKind.OWN_CODE:
                return f"nobody waited in a collective or for a message: {did}"
            case FindingKind.WAITING:
                odd = f"Rank {self.ranks[0]} was not where most others were." if self.ranks else ""
                return f"everybody was in torch.distributed: {did}", odd
        return did


# -- what came from outside


class Outside(Finding):
    """What came over ranks from outside."""

    kind: Kind = FindingKind.OUTSIDE
    what: Literal["node", "rank"]
    node: str = ""
    how: str = ""
    """Of a node: what the engine says of it."""
    disconnected: bool = False
    signal: str = ""

    @property
    def cause(self) -> str:
        """Whether the rank or its node was stopped, or the node cut off."""
        return "stopped" if self.what == "rank" else "node_disconnected" if self.disconnected else "node_paused"

    def render(self) -> Words:
        """What happened to the node or the rank."""
        if self.what == "rank":
            return f"{full_name(self.ranks[0], self.node)} was stopped by {self.signal}"
        return f"{self.node} {self.how}{ran_there(self.ranks)}"


# -- runs that failed


class FirstFailure(Finding):
    """Who failed first, or left, and where that found the others."""

    kind: Kind = FindingKind.FAILED
    what: Literal["nodes_lost", "node_lost", "late", "left", "failed", "strayed"]
    node: str = ""
    nodes: tuple[str, ...] = ()
    """That were lost together."""
    how: str = ""
    """How they were lost, as the engine says it of one."""
    missed: f.Missed | None = None
    code: int | None = None
    end: f.End | None = None
    place: f.CodePlace | None = None
    progress: f.Progress | None = None
    hits: tuple[f.Hit, ...] = ()

    def render(self) -> Words:
        """How the first one failed, how far it had come, and the steps in which that found others."""
        if self.what == "nodes_lost":
            head = f"{self.name_lost()}; {name_ranks(self.ranks)} ran there"
        elif self.what == "node_lost":
            head = f"rank {self.ranks[0]}'s node, {self.node}, went away"
        else:
            head = f"{full_name(self.ranks[0], self.node)} {self.what_it_did()}"
        progress = _render_progress(self.progress)
        hits = [f"{capitalize_first(_hit(hit))}." for hit in self.hits[:_MOST_HITS]]
        return f"{head}, {progress}" if progress else head, *hits

    def what_it_did(self) -> str:
        """How the rank failed, or left, or was late."""
        if self.what in ("late", "left") and self.missed:
            return _missed(self.missed)
        if self.what == "failed" and self.end:
            return render_end(self.end)
        if self.what == "left":
            return f"ended with code {self.code}"
        return f"was {render_place(self.place)} and no longer with the others" if self.place else ""

    def name_lost(self, when: str = " in mid-run") -> str:
        """Say which nodes were lost and why: `node1 was killed in mid-run`."""
        how = self.how or "went away"
        if len(self.nodes) > 1:
            how = how.replace("was ", "were ", 1).replace("its host", "their host")
        return f"{words.name_nodes(self.nodes)} {how}{when}"


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


def _hit(hit: f.Hit) -> str:
    ranks = [call.rank for call in hit.calls]
    failed = [call for call in hit.calls if call.error]
    if len(failed) == len(hit.calls) and not any(call.lost for call in hit.calls):
        return _refusal(hit.name, hit.calls)
    return (
        f"{name_ranks(ranks)} {was_or_were(ranks)} in {hit.name}{_at(hit.calls)}{' and failed there' if failed else ''}"
    )


class WentAlone(Finding):
    """A rank that called something when those whom it needed there had ended."""

    kind: Kind = FindingKind.WENT_ALONE
    node: str = ""
    call: f.CallFacts | None = None
    """Which call that was, where that is known; else where it was."""
    place: f.CodePlace | None = None
    message: bool = False
    progress: f.Progress | None = None
    """How far the others had come, if that is the same for all."""

    def render(self) -> Words:
        """What the rank called, and who had ended."""
        return f"{full_name(self.ranks[0], self.node)} {self.what_it_did()}"

    def what_it_did(self) -> str:
        """What it called alone."""
        if self.call is None:
            return _alone(self.place, self.others)
        called, others = f"it called {self.step}{_at([self.call])}", name_ranks(self.others)
        never = f"which {others} never {'answered' if self.message else 'called'}"
        return (
            f"went on alone: {called}, {never}; they had ended with code 0 {_render_progress(self.progress)}".rstrip()
        )


class OddCall(Finding):
    """A rank whose collective differs from that of most others, as PyTorch compared them."""

    kind: Kind = FindingKind.MISMATCH
    call: str
    common: str

    def render(self) -> Words:
        """What it called, and what most others did."""
        return f"rank {self.ranks[0]} {self.what_it_did()}"

    def what_it_did(self) -> str:
        """What it called, and what most others did."""
        return f"called {self.call}{at(self.lines)} where most others called {self.common}"


# -- the reason of a verdict


def hang_reason(time_given: str, heads: Sequence[str], did: Iterable[tuple[int, str]]) -> str:
    """Why a run hung: what was found, and where ranks were, or what those did that had ended."""
    return f"no end after {time_given}: {'; '.join([*heads, *join_ranks(did)])}"


def node_reason(facts: FirstFailure, *, launcher: bool) -> str:
    """Why a run failed that lost nodes."""
    met = ", and the launcher's processes met there" if launcher else ""
    return f"{facts.name_lost()}; {name_ranks(facts.ranks)} ran there{met}"


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
