"""The kernel's findings with their sentences, and the reasons of verdicts. No code parses these sentences.

Findings of features have the same form and are in the features. Words for runs without failures are in
`lab.diagnosis.reasons`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from lab import words
from lab.diagnosis import finding as f
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words, group_ranks
from lab.words import capitalize_first, clip_end, format_count, format_duration, join_words, name_ranks, was_or_were

_LONGEST_REFUSAL = 120
_LONGEST_THREAD_ERROR = 120
_LONGEST_ERROR = 240
"""Its traceback shows all of it."""
_LONGEST_REASON = 200
_LONGEST_THEN = 80
"""Of the error of a rank that failed because of another one."""
_MOST_HITS = 3
_GROUP_ORDER = "Ranks have to enter the collectives of several groups in the same order."
_WAY_TO_INSTALL = (
    "; the nodes lack it: add its package to `requirements:` in the scenario, to a `# /// script` block of the script, "
    "or to a file for `lab up --requirements`"
)

# -- ranks, calls, locations


def full_name(rank: int, node: str) -> str:
    """`rank 1 (node0)`."""
    return f"rank {rank} ({node})" if node else f"rank {rank}"


def join_ranks(clauses: Iterable[tuple[int, str]]) -> list[str]:
    """Return one clause per statement, for all ranks that share it: `ranks 0 and 1 were at train.py:4`."""
    return [
        f"{name_ranks(ours)} {was_or_were(ours)}{what[3:]}" if what.startswith("was ") else f"{name_ranks(ours)} {what}"
        for what, ours in group_ranks(dict(clauses)).items()
    ]


def render_lines(lines: Iterable[str]) -> str:
    """Return ` at train.py:4 and train.py:9`; empty without a known line."""
    known = join_words(lines)
    return f" at {known}" if known else ""


def _at(calls: Iterable[f.CallFacts]) -> str:
    return render_lines(call.source for call in calls)


def describe_call(call: f.CallFacts) -> str:
    """`recv from rank 1 with tag 3`, `all_reduce #2`."""
    if not call.direction:
        return call.name + (f" in {call.group}" if call.group else "")
    tag = f" with tag {call.tag}" if call.tag else ""
    peer = "any rank" if call.peer is None else f"rank {call.peer}"
    return f"{call.name} {call.direction} {peer}{tag}"


def describe_wait(call: f.CallFacts) -> str:
    """`recv from rank 1 with tag 3 at train.py:9`."""
    return describe_call(call) + render_lines([call.source])


def render_location(location: f.CodeLocation) -> str:
    """`in all_reduce at train.py:41`."""
    if location.call:
        return f"in {location.call} at {location.at}"
    where = f"at {location.at} ({location.source})" if location.source else f"at {location.at}"
    if location.child is None:
        return where
    whose = "its DataLoader worker" if location.child.loader else "a process that it started"
    return f"{where}, {whose} {render_location(location.child)}"


def render_stood(stood: f.Stood) -> str:
    """`at train.py:37 (time.sleep(99))`, `in barrier at train.py:41`, `done, but did not end`."""
    if stood.state == "returned":
        return "done with the call"
    location = render_location(stood.location) if stood.location else ""
    if stood.state == "leaving":
        thread = f": a thread of it was {render_location(stood.thread)}" if stood.thread else ""
        return f"done, but did not end{f': it was {location}' if location else thread}"
    after = f", after a thread of it had {render_raised(stood.raised)}" if stood.raised else ""
    return (location or "in code without a Python stack") + after


def quote_error(error: str) -> str:
    """Put the text of an error that PyTorch can have raised into quotation marks: `RuntimeError: "..."`."""
    kind, colon, text = error.partition(": ")
    of_torch = kind.startswith("torch.") or kind == "RuntimeError"
    return f'{kind}: "{text}"' if colon and of_torch and '"' not in text else error.removesuffix(":")


def render_raised(raised: f.ThreadError) -> str:
    """`raised OSError: no at load.py:7`."""
    error = clip_end(raised.error.partition("\n")[0], _LONGEST_THREAD_ERROR)
    return f"raised {quote_error(error)}{render_lines([raised.at])}"


def render_end(end: f.End) -> str:
    """`raised ValueError: ... at train.py:30`."""
    location, where = (f" {render_location(end.location)}", f" at {end.location.at}") if end.location else ("", "")
    held = f"{words.format_bytes(end.held_bytes)} used" if end.held_bytes else ""
    limit = f"limit {words.format_limit(end.limit_bytes)}" if end.limit_bytes else ""
    if (activity := end.last_activity) is not None and not location:
        location = f", last seen {'after' if activity.ended else 'in'} {activity.name}{render_lines([activity.source])}"
    error = quote_error(clip_end(end.error.removesuffix("."), _LONGEST_ERROR))
    expected = f", expected {end.expected_code}," if end.expected_code else ""
    sizes = ", ".join(filter(None, [held, limit]))
    out_of_memory = f"was killed{location}: out of memory{f' ({sizes})' if sizes else ''}"
    return {
        "memory": out_of_memory,
        "signal": f"was killed by {end.signal}{location}",
        "raised": f"raised {error}{where}",
        "unseen": f"ended{where} with an unknown exit status",
        "exited": f"exited with code {end.code}{expected}{where}{f': {error}' if end.error else ''}",
    }[end.how]


def render_activity(did: f.Activity) -> str:
    """Return what a rank did, as words that follow its name."""
    after = "" if did.after is None else _after(did.after)
    return {
        "waited": f"waited in {describe_wait(did.call) if did.call else ''}",
        "node_lost": f"was lost with its node, {did.node}{after}",
        "failed": f"{render_end(did.end) if did.end else ''}{after}",
        "left": f"had ended with code {did.code}{after}",
        "stood": f"was {render_stood(did.stood) if did.stood else ''}",
        "called": f"was somewhere after {did.call.name + _at([did.call]) if did.call else ''}",
        "unrecorded": "was not recorded",
        "not_dumped": "was in no recorded call",
        "uncalled": "had made no call yet",
    }[did.what]


def _after(done: f.Progress) -> str:
    return f" after {done.name}{render_lines([done.source])}" if done.calls else ", before its first call"


def describe_activities(did: Iterable[f.Activity]) -> list[str]:
    """Return what ranks did, one clause for all ranks that share it."""
    return join_ranks((one.rank, render_activity(one)) for one in did)


def _render_progress(progress: f.Progress | None) -> str:
    if progress is None or not progress.calls:
        return "" if progress is None else "before its first call"
    where = progress.name + render_lines([progress.source])
    last = f"after {format_count(progress.calls, 'call')}, the last of them {where}"
    return f"in {where}" if progress.unfinished else last


def _refusal(title: str, calls: Sequence[f.CallFacts]) -> str:
    """Say that calls failed: `reduce #2 at train.py:4 was refused to rank 1 (why)`."""
    happened = "failed on" if any(call.lost for call in calls) else "was refused to"
    ranks, why = name_ranks(call.rank for call in calls), clip_end(calls[0].error, _LONGEST_REFUSAL)
    return f'{title}{_at(calls)} {happened} {ranks} ("{why}")'


def render_repeats(count: int) -> str:
    """Say in how many other steps the same happened; empty if in none."""
    return f"The same happened in {format_count(count, 'other step')}." if count else ""


def render_waited(seconds: float | None, around: str = " for {}") -> str:
    """Return how long ranks had waited, inside the words `around`; empty if no clock tells."""
    return "" if seconds is None else around.format(format_duration(seconds))


def ran_there(ranks: Sequence[int]) -> str:
    """Return a clause with the ranks on the nodes of the previous clause; empty without ranks."""
    return f"; {name_ranks(ranks)} ran there" if ranks else ""


def render_ring(ring: Sequence[int]) -> str:
    """`0 → 1 → 0`."""
    return " → ".join(map(str, (*ring, ring[0])))


def render_unexpected(element: f.UnexpectedElement) -> str:
    """Describe an output: `element 0 on rank 1 is 7, but should be 6`."""
    of = f" of its {words.format_ordinal(element.tensor + 1)} tensor" if element.tensors > 1 else ""
    if element.element is None:
        tensor = f"{words.format_ordinal(element.tensor + 1)} tensor" if of else "tensor"
        why = "cannot come from the inputs" if element.reduces else "differs from the sent one"
        return f"the {tensor} of rank {element.rank} {why}"
    got, expected = (f"{it:.6g}" if isinstance(it, float) else str(it) for it in (element.got, element.expected))
    return f"element {element.element}{of} on rank {element.rank} is {got}, but should be {expected}"


# -- runs that hung


class MissedStep(Finding):
    """A step that some ranks waited in and others never entered."""

    waits: tuple[f.CallFacts, ...]
    missing: tuple[int, ...]
    unknown: tuple[int, ...] = ()
    """Ranks that left no dump, so that they may have entered the step."""
    message: bool = False
    receives: bool = False
    did: tuple[f.Activity, ...] = ()
    """What the missing ranks did."""
    refused: tuple[f.CallFacts, ...] = ()
    """Calls of the missing ranks, if all of them failed."""
    in_other_groups: bool = field(default=False, metadata={"key": "several_groups"})
    """Whether the missing ranks were in a collective of another group."""
    untold_messages: tuple[int, ...] = ()
    """For dumps: missing ranks that may have waited for a message."""

    def render(self) -> Words:
        """Say who never entered it, who waited there, and what the missing ranks did."""
        who, lines = name_ranks(call.rank for call in self.waits), _at(self.waits)
        dump = f"there is no dump of {'them' if len(self.unknown) > 1 else 'it'}."
        unknown = f"It is unknown whether {name_ranks(self.unknown)} entered it: {dump}" if self.unknown else ""
        if not self.missing:
            return f"{who} waited in {self.step}{lines}", unknown
        there = render_waited(self.seconds, " for {}," if lines else " for {}") + lines
        whom, did = name_ranks(self.missing), join_words(describe_activities(self.did))
        head, rest = f"{whom} never entered {self.step}", f"{capitalize_first(who)} waited there{there}; {did}."
        if self.refused:
            head = _refusal(self.step, self.refused)
        elif self.message:
            verb = "sent it" if self.receives else "received it"
            head = f"{who} waited in {describe_call(self.waits[0])}{there}: {whom} never {verb}"
            rest = f"{capitalize_first(did)}."
        untold = f"These dumps do not show whether {name_ranks(self.untold_messages)} waited for a message."
        order = _GROUP_ORDER if self.in_other_groups else ""
        return head, rest, unknown, order, untold if self.untold_messages else ""


class Ring(Finding):
    """Ranks that wait for each other in a ring."""

    kind: Kind = FindingKind.DEADLOCK
    cycle: tuple[int, ...]
    waits: tuple[f.CallFacts, ...]
    all_of: Literal["collectives", "receives", "sends", "mixed"] = "mixed"
    """Operations of the calls in the ring."""
    groups: tuple[f.Side, ...] = ()
    """The groups of the ring's collectives, and where they were created."""
    unmatched: tuple[f.CallFacts, ...] = ()
    """For a ring of sends, receives from or of its ranks that no send matches; for one of receives, such sends."""

    def render(self) -> Words:
        """Describe the ring, what each of its ranks waits in, and how to fix the program."""
        each = join_words(join_ranks((call.rank, f"in {describe_wait(call)}") for call in self.waits))
        ranks = name_ranks(call.rank for call in self.waits)
        lines = join_words(f"{group.what} at {group.lines[0]}" for group in self.groups)
        advice = {
            "collectives": _GROUP_ORDER + (f" Groups were made here: {lines}." if lines else ""),
            "receives": "Each of these ranks receives before it sends: one has to send first.",
            "sends": "Each of these ranks sends before it receives: one has to receive first.",
            "mixed": "Each of these calls waits for another one to end.",
        }
        fix, took = advice[self.all_of], render_waited(self.seconds, ", for {} now")
        if self.unmatched:
            called = join_words(f"rank {call.rank}'s {describe_wait(call)}" for call in self.unmatched[:_MOST_HITS])
            fix = f"No call matches {called}: one of the calls here may name a wrong rank."
        return f"{ranks} wait for each other in a ring ({render_ring(self.cycle)}){took}: {each}", fix


def _alone(location: f.CodeLocation | None, gone: Iterable[int]) -> str:
    where = f" {render_location(location)}" if location else ""
    return f"continued alone{where} after {name_ranks(gone)} had ended with code 0"


class BlockingRank(Finding):
    """The rank that kept the others waiting, by the stacks of all ranks."""

    how: Literal["absent", "alone", "gone", "odd"]
    waited: bool = False
    """For an absent rank: whether the others waited in a collective."""
    stood: f.Stood | None = None
    common: f.Stood | None = None
    """Where most other ranks were."""
    location: f.CodeLocation | None = field(default=None, metadata={"key": "place"})

    def what_it_did(self) -> str:
        """Say that it did not come, continued alone, ended early, or was elsewhere."""
        stood = render_stood(self.stood) if self.stood else ""
        absent = "did not enter the collective that others waited in; it " if self.waited else ""
        return {
            "absent": f"{absent}was {stood}",
            "alone": _alone(self.location, self.others),
            "gone": f"exited early, with code 0{render_lines(self.lines)}, while others waited for it",
            "odd": f"was {stood} while others were {render_stood(self.common) if self.common else ''}",
        }[self.how]


class InFlight(Finding):
    """A step that all ranks entered and that did not end."""

    kind: Kind = FindingKind.IN_FLIGHT
    entered: tuple[int, ...] | None = None
    """For dumps: ranks that are known to have entered it; None: all ranks."""
    sources: tuple[str, ...] = ()

    def render(self) -> Words:
        """Say who entered it, and who did not complete it."""
        lines = render_lines(self.sources)
        there = (render_waited(self.seconds, "{}," if lines else "{}") + lines).strip()
        who = "all ranks" if self.entered is None else name_ranks(self.entered)
        entered = f"{who} entered {self.step}, and {name_ranks(self.others)} never returned from it"
        return f"{entered}{f' ({there})' if there else ''}: the data did not arrive before the time limit"


class Activities(Finding):
    """What ranks did, if no step shows more."""

    did: tuple[f.Activity, ...]
    longest_s: float | None = None
    """The longest wait in seconds, if the time was up while ranks were at work."""
    importing: tuple[int, ...] = ()
    """Ranks that still imported modules, if the others waited for nothing else."""
    by: tuple[str, ...] = ()
    """What shows that the ranks in `did` were at work, if the others only waited: `computing`, `printing`."""

    def render(self) -> Words:
        """Say what each rank did, and what that means."""
        did = join_words(describe_activities(self.did))
        match self.kind:
            case FindingKind.OUT_OF_TIME if self.by:
                still = re.sub(r"\b(was|were)\b", rf"\1 still {join_words(self.by)}", did, count=1)
                waiting = [rank for rank in self.others if rank not in {one.rank for one in self.did}]
                them = "them" if len(self.did) > 1 else "it"
                return still + (f", and {name_ranks(waiting)} waited for {them}" if waiting else "")
            case FindingKind.OUT_OF_TIME if self.importing:
                return f"{did}, still importing modules"
            case FindingKind.OUT_OF_TIME:
                longest = format_duration(self.longest_s or 0.0)
                head = f"the ranks were still working at the time limit: no rank had waited longer than {longest}"
                return head, f"{capitalize_first(did)}."
            case FindingKind.OWN_CODE:
                return f"no rank waited in a collective or for a message: {did}"
            case FindingKind.WAITING:
                deviating = f"Rank {self.ranks[0]} was at another line than most ranks." if self.ranks else ""
                return f"all ranks were in torch.distributed: {did}", deviating
        return did


class Progress(Finding):
    """Ranks completed one step after the other until the time limit."""

    kind: Kind = FindingKind.OUT_OF_TIME
    what: Literal["step", "call"]
    """What they completed: optimizer steps, or collectives and messages."""
    count: int
    """How many the rank with the fewest completed."""
    per_s: float
    """Pace of the last ones."""
    after: str
    """The time limit, or how long the run took until it was interrupted."""

    def render(self) -> Words:
        """Say how far the ranks got, and at which pace."""
        return f"still progressing after {self.after} {self.how_far}"

    @property
    def how_far(self) -> str:
        """`(step 412, 9 steps/s)`."""
        pace = f"{self.per_s:.3g} {self.what}s/s" if self.per_s >= 1 else f"{1 / self.per_s:.3g} s each"
        return f"({self.what} {self.count:,}, {pace})"


# -- what came from outside


class Outside(Finding):
    """A cause from outside that affected ranks."""

    kind: Kind = FindingKind.OUTSIDE
    what: Literal["node", "rank"]
    node: str = ""
    how: str = ""
    """For a node: what the engine reports."""
    disconnected: bool = False
    signal: str = ""

    @property
    def cause(self) -> str:
        """The cause: a stopped rank, a stopped node, or a disconnected node."""
        return "stopped" if self.what == "rank" else "node_disconnected" if self.disconnected else "node_paused"

    def render(self) -> Words:
        """Say what happened to the node or the rank."""
        if self.what == "rank":
            return f"{full_name(self.ranks[0], self.node)} was stopped by {self.signal}"
        return f"{self.node} {self.how}{ran_there(self.ranks)}"


# -- runs that failed


class FirstFailure(Finding):
    """The rank or node that failed first or left, and the steps in which this affected others."""

    kind: Kind = FindingKind.FAILED
    what: Literal["nodes_lost", "node_lost", "late", "left", "failed", "strayed"]
    node: str = ""
    nodes: tuple[str, ...] = ()
    """Nodes that were lost together."""
    how: str = ""
    """How they were lost, as the engine words it for one node."""
    missed: f.Missed | None = None
    code: int | None = None
    end: f.End | None = None
    location: f.CodeLocation | None = field(default=None, metadata={"key": "place"})
    progress: f.Progress | None = None
    hits: tuple[f.Hit, ...] = ()
    alike: tuple[int, ...] = ()
    """Ranks that raised the same error at the same line."""

    def render(self) -> Words:
        """Say how the first rank failed, how far it had come, and in which steps this affected others."""
        if self.what == "nodes_lost":
            head = f"{self.name_lost()}; {name_ranks(self.ranks)} ran there"
        elif self.what == "node_lost":
            head = f"rank {self.ranks[0]}'s node, {self.node}, was lost"
        else:
            head = f"{full_name(self.ranks[0], self.node)} {self.what_it_did()}{self.name_alike()}"
        progress, location = _render_progress(self.progress), self.end and self.end.location
        if location and location.call and not (self.progress and self.progress.calls):
            progress = f"in {location.call}"  # which refused its arguments
        hits = [f"{capitalize_first(_hit(hit))}." for hit in self.hits[:_MOST_HITS]]
        return f"{head}, {progress}" if progress else head, *hits

    def what_it_did(self) -> str:
        """Say how the rank failed, left, or was late."""
        if self.what in ("late", "left") and self.missed:
            return _missed(self.missed)
        if self.what == "failed" and self.end:
            return render_end(self.end)
        if self.what == "left":
            return f"ended with code {self.code}"
        return f"was {render_location(self.location)} and no longer with the others" if self.location else ""

    def name_alike(self) -> str:
        """Name the ranks that failed like the first one, as a clause that follows it."""
        return f"; so did {name_ranks(self.alike)}" if self.alike else ""

    def name_lost(self, when: str = " during the run") -> str:
        """Say which nodes were lost and why: `node1 was killed during the run`."""
        how = self.how or "was lost"
        if len(self.nodes) > 1:
            how = how.replace("was ", "were ", 1).replace("its host", "their host")
        return f"{words.name_nodes(self.nodes)} {how}{when}"


def _missed(missed: f.Missed) -> str:
    where = render_stood(missed.stood) if missed.stood else ""
    took = format_duration(missed.seconds)
    was_at, lines = f"; it was {where}" if where else "", render_lines([missed.source])
    after = _after(missed.after) if missed.after else f" after {took}"
    return {
        "exited": f"exited early, with code {missed.code}{lines}{after}, while others still needed it",
        "was_late": f"was late: it was {where}",
        "left": f"left the others while they still needed it; it was {where}",
        "never_came": f"had not entered {missed.step} when rank {missed.victim} stopped waiting for it{was_at}",
        "came_late": f"entered {missed.step}{lines} {took} after rank {missed.victim} stopped waiting for it{was_at}",
    }[missed.how]


def _hit(hit: f.Hit) -> str:
    ranks = [call.rank for call in hit.calls]
    failed = [call for call in hit.calls if call.error]
    if len(failed) == len(hit.calls) and not any(call.lost for call in hit.calls):
        return _refusal(hit.name, hit.calls)
    there = " and failed there" if failed else ""
    return f"{name_ranks(ranks)} {was_or_were(ranks)} in {hit.name}{_at(hit.calls)}{there}"


class WentAlone(Finding):
    """A rank that called something after the ranks that it needed had ended.

    It names no rank if they are as many as those that called it.
    """

    kind: Kind = FindingKind.WENT_ALONE
    node: str = ""
    call: f.CallFacts | None = None
    """That call, if known; otherwise `location` is set."""
    location: f.CodeLocation | None = field(default=None, metadata={"key": "place"})
    message: bool = False
    progress: f.Progress | None = None
    """How far the others had come, if it is the same for all of them."""

    def render(self) -> Words:
        """Say what the rank called, and who had ended."""
        if self.ranks:
            return f"{full_name(self.ranks[0], self.node)} {self.what_it_did()}"
        name, where = (self.step or self.call.name, _at([self.call])) if self.call is not None else ("", "")
        name = f"{self.call.name} ({self.step})" if self.call and self.message else name
        gone, after = name_ranks(self.others[1:]), _render_progress(self.progress)
        head = f"rank {self.others[0]} called {name or 'a collective'}{where} when {gone} had ended with code 0 {after}"
        return head.rstrip(), "Either side made a call too many or too few; its calls do not show which side."

    def what_it_did(self) -> str:
        """Say what it called alone."""
        if self.call is None:
            return _alone(self.location, self.others)
        called, others = f"it called {self.step}{_at([self.call])}", name_ranks(self.others)
        never = f"which {others} never {'answered' if self.message else 'called'}"
        after = _render_progress(self.progress)
        return f"continued alone: {called}, {never}; they had ended with code 0 {after}".rstrip()


class DeviatingCall(Finding):
    """A rank whose collective differs from most others, as PyTorch compared them."""

    kind: Kind = FindingKind.MISMATCH
    call: str
    common: str

    def what_it_did(self) -> str:
        """Say what it called, and what most others called."""
        return f"called {self.call}{render_lines(self.lines)} where most others called {self.common}"


# -- reasons of verdicts


def names_line(headlines: Iterable[str]) -> bool:
    """Return whether a headline names a line of a script."""
    return any(map(re.compile(r"\.py:\d+").search, headlines))


def hang_reason(after: str, heads: Sequence[str], did: Iterable[tuple[int, str]]) -> str:
    """Return why a run hung: the headlines, and what ranks did as far as it fits into a short sentence.

    If no headline names a line, what the first ranks did is never left out.
    """
    shown, clauses = [*heads], join_ranks(did)
    longest = _LONGEST_REASON if heads else 2 * _LONGEST_REASON
    has_line = names_line(heads)
    while clauses and (not has_line or len("; ".join([after, *shown, clauses[0]])) <= longest):
        shown.append(clauses.pop(0))
        has_line = True
    hidden = f"; {format_count(len(clauses), 'group')} of ranks elsewhere" if clauses and not heads else ""
    return f"{after}: {'; '.join(shown)}{hidden}"


def node_reason(facts: FirstFailure, *, launcher: bool) -> str:
    """Return why a run failed that lost nodes."""
    met = ", and the launcher's rendezvous was on it" if launcher else ""
    return f"{facts.name_lost()}; {name_ranks(facts.ranks)} ran there{met}"


def deviating_call_reason(finding: Finding, rank: int, node: str, victim: int, end: f.End | None) -> str:
    """Return why a run failed in which a rank's call differs from most others.

    If another rank failed then, the reason says so.
    """
    headline, name = finding.headline, f"rank {rank} "
    did = headline.removeprefix(name)  # the headline says what this rank did
    if did == headline:
        did = f"did not make the same call as the others: {headline}"
    then = f"; {then_failed(victim, end)}" if end is not None else ""
    return f"{full_name(rank, node)} {did}{then}"


def own_reason(first: str, before: Finding | None, others: Iterable[Finding]) -> str:
    """Return why a run failed in which a rank failed by itself: earlier differences, and further causes."""
    earlier = f"; before that, {before.headline}" if before is not None else ""
    return "; ".join([first + earlier, *(f"besides, {one.headline}" for one in others)])


def way_to_get_module(own: Any) -> str:
    """Return the fix for a module that a rank could not import; `own` is the user's file with that module, if any."""
    if own is None:
        return _WAY_TO_INSTALL
    return (
        f"; {own.path} was not shipped: the folder of the run was {own.folder}; --folder names another one, "
        "--all-files adds what .gitignore excludes"
    )


def way_to_get_file(own: Any) -> str:
    """Return the fix for a file of the user's that a rank did not find."""
    return (
        f"; {own.path} was not shipped, because .gitignore, .labignore, or its hidden folder excludes it: use "
        "--all-files, or name its folder with `data:` or --data"
    )


def then_failed(rank: int, end: f.End) -> str:
    """Return how another rank failed, as a clause that follows the first cause."""
    return f"rank {rank} then {render_end(replace(end, error=clip_end(end.error, _LONGEST_THEN)))}"


def it_failed(end: f.End) -> str:
    """Return how a rank failed that continued alone, as a clause that follows it."""
    return f": it {render_end(end)}"


def named_by(rank: int) -> str:
    """Return why a rank is responsible for an error that all ranks raised, as a clause that follows it."""
    return f"; the error names rank {rank}"


def no_such_rank(peer: int) -> str:
    """Return why a message failed, as a clause that follows it."""
    return f": there is no rank {peer}"
