"""Find messages that cannot arrive, ranks that left their loop for one, and ranks that ended before a message.

Such a message is a send without a receive, or a receive without a send.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from lab.diagnosis import ends
from lab.diagnosis import finding as f
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words, find_majority
from lab.diagnosis.wording import describe_activities, describe_wait, render_lines, render_ring, render_waited
from lab.features.mismatches.findings import find_due_call, find_skipped_calls, left_loop
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, join_words, name_ranks

_FEWEST = 3
"""Fewest ranks for a majority."""
_FEWEST_ROUNDS = 2
"""Fewest rounds that show how a tag changes from one to the next."""


_How = Literal["neighbour", "no_such_rank", "passing_by", "other_peers", "nobody_there"]


class Strayed(Finding):
    """The rank of a ring that waits in another call than the next one of its own loop."""

    kind: Kind = FindingKind.DEADLOCK
    cycle: tuple[int, ...]
    wait: f.CallFacts
    usual: f.CallFacts
    """The next call in its earlier rounds."""

    def render(self) -> Words:
        """Say where it waited, and how its loop would have continued."""
        waited, usual = f"{describe_wait(self.wait)}{render_waited(self.seconds)}", describe_wait(self.usual)
        head = f"rank {self.wait.rank} waited in {waited}, but in its earlier rounds it continued with {usual}"
        return head, f"The ranks wait for each other in a ring ({render_ring(self.cycle)})."


class UnmatchedMessage(Finding):
    """A message that cannot arrive."""

    kind: Kind = FindingKind.UNMATCHED
    how: _How
    waits: tuple[f.CallFacts, ...]
    last_rank: int = 0
    waited_s: float | None = None
    """How long the first rank had waited; for `passing_by` and `other_peers`, the first two."""
    usual_distance: int = 0
    """Distance in ranks to the peer that all others address."""
    alike: tuple[int, ...] = ()
    """Those other ranks."""
    group_size: int = 0
    did: tuple[f.Activity, ...] = ()
    before: int = 0
    """How many such messages had come before."""
    usual_tag: int | None = None
    """For `passing_by`: the tag that the named rank would have used as in its earlier rounds, or as other ranks do."""
    left_out: f.CallFacts | None = None
    """The call that the other end skipped in its own loop."""
    left_next: bool = False
    """Whether that was the next call of its loop; otherwise it skipped the call once and continued."""
    made_by: tuple[int, ...] = ()
    """Ranks that all made such a call; then this shows that the other end skipped it, and not its own loop."""

    def render(self) -> Words:
        """Name the rank that waited for the message, and why it cannot arrive."""
        first, did = self.waits[0], "; ".join(describe_activities(self.did))
        head, took = f"rank {first.rank} waited in {describe_wait(first)}", render_waited(self.waited_s)
        if self.how == "neighbour":
            return _neighbour(self, first)
        if self.how == "no_such_rank":
            return f"{head}{took}: there is no rank {first.peer}, the last one is {self.last_rank}"
        if self.how == "passing_by":
            usual = f"Earlier messages, or those of other ranks, show tag {self.usual_tag}."
            return _passing_by(self, *self.waits[:2]), "" if self.usual_tag is None else usual
        if self.how == "other_peers":
            other = f"rank {self.waits[1].rank} in {describe_wait(self.waits[1])}{took}"
            return f"{head}, and {other}: no call matches either message{f'; {did}' if did else ''}"
        verb, who = "never received it", "nobody" if first.peer is None else f"rank {first.peer}"
        if first.direction == "from":
            than_before = f" more than the {format_count(self.before, 'message')} before" if self.before else ""
            verb = f"sent it {'anything' if first.peer is None else 'nothing'}{than_before}"
        left, call = "", self.left_out
        if call is not None:
            once = f"had skipped {describe_wait(call)} in one round, and continued with the call after it."
            left = f"In earlier rounds, rank {call.rank} did it." if self.left_next else f"Rank {call.rank} {once}"
            if self.made_by:
                there = render_lines([call.source])
                left = (
                    f"{capitalize_first(name_ranks(self.made_by))} called {call.name}{there}; rank {call.rank} did not."
                )
        return f"{head}{took}, and {who} {verb}: {did}", left


def find_stand_off(run: ends.Waiting) -> list[Finding]:
    """Return messages that cannot arrive, or the one rank that left its loop and closed a ring."""
    messages = _Messages(*run)
    return messages.unmatched() or [*filter(None, [messages.find_leaving_rank(ends.find_cycle(run.waits))])]


class _Messages(ends.Waiting):
    """Creates these findings."""

    def find_leaving_rank(self, ring: Sequence[int]) -> Finding | None:
        """Return a finding on the only waiting rank that left its loop half way, if it is in the ring.

        The others wait where their loops would continue. If several left theirs, they may have agreed on it.
        """
        leaving = {rank: usual for rank, wait in self.waits.items() if (usual := self._left_half_way(wait)) is not None}
        rank, usual = next(iter(leaving.items()), (-1, None))
        if usual is None or len(leaving) > 1 or rank not in ring:
            return None
        step, wait = self.evidence.step(usual), self.waits[rank]
        if step is not None and step.message:
            usual_call = ends.call_facts(usual, step)
        else:  # without its number
            group = "" if step is None or step.group.label == "default" else step.group.title
            source = usual.source if step is not None else ""
            usual_call = f.CallFacts(rank=rank, name=usual.op, source=source, group=group)
        others = [other for other in ring if other != rank]
        return Strayed(
            cycle=tuple(ring),
            wait=wait.facts,
            usual=usual_call,
            ranks=(rank,),
            others=tuple(others),
            step=wait.step.title,
            lines=(wait.call.source, usual_call.source, *(self.waits[other].call.source for other in others)),
            seconds=ends.waited_s(self.evidence, [wait]),
        )

    def _left_half_way(self, wait: ends.Wait) -> Call | None:
        """Return the call that a rank's loop made next a round before, if the rank now waits in something else."""
        calls = self.evidence.calls(wait.rank)
        position = next(n for n, call in enumerate(calls) if call is wait.call)
        done = [(call.op, f"{call.source} {call.group}") for call in calls[: position + 1]]
        before = find_due_call(done[:-1], done[-1])
        if before is None or (done[before] == done[-1] and calls[before].peer == wait.call.peer):
            return None
        return calls[before]

    def unmatched(self) -> list[Finding]:
        """Return messages that ranks wait in and that cannot arrive, even if every other rank gets as far as it can.

        A message may still come if its other end is in its own code, or waits for such a rank. A message in a ring of
        messages only may come when another one does.
        """
        waits = self.waits
        pending = {rank: wait for rank, wait in sorted(waits.items()) if wait.step.message and wait.on}
        if (unlike := next(filter(None, map(self._neighbour, pending.values())), None)) is not None:
            return [unlike]
        findings, explained = [], set[int]()
        for rank, wait in pending.items():
            peer, sends = wait.on[0] if len(wait.on) == 1 else -1, wait.call.operation.sends
            other = pending.get(peer)
            if rank in explained or peer in explained:
                continue
            back = [one for one in pending if waits[one].on == (rank,) and waits[one].call.operation.sends != sends]
            ours: tuple[ends.Wait, ...] = (wait,)
            if len(wait.on) == 1 and peer not in self.evidence.ranks:
                findings.append(self._unmatched("no_such_rank", ours, (rank,), last_rank=max(self.evidence.ranks)))
            elif other is not None and peer in back:
                ours = (wait, other) if sends else (other, wait)
                findings.append(self._passing_by(ours))
            elif not self._in_mixed_ring(rank):
                continue
            elif (other is not None and self._in_mixed_ring(peer)) or (back and back[0] not in explained):
                ours = (wait, other) if other is not None and self._in_mixed_ring(peer) else (waits[back[0]], wait)
                did = self.did([one for one in ours[1].on if one != ours[0].rank])
                waited_s = ends.waited_s(self.evidence, ours)
                findings.append(self._unmatched("other_peers", ours, did=did, waited_s=waited_s))
            else:
                findings.append(self._nobody_there(wait))
            explained |= {one.rank for one in ours}
        return sorted(findings, key=lambda one: not one.ranks)

    def _in_mixed_ring(self, rank: int) -> bool:
        """Return whether a rank indirectly waits for itself, through more than messages."""
        reached: dict[int, bool] = {}
        todo = [(one, False) for one in self.waits[rank].on]
        while todo:
            one, mixed = todo.pop()
            if one == rank and mixed:
                return True
            if one in self.waits and one != rank and not (one in reached and reached[one] >= mixed):
                reached[one] = mixed
                todo += [(after, mixed or not self.waits[one].step.message) for after in self.waits[one].on]
        return False

    def _passing_by(self, ours: tuple[ends.Wait, ...]) -> Finding:
        """Return a finding on a send and a receive of two ranks that address each other with other tags or groups."""
        differ = len({one.call.group for one in ours}) > 1
        calls = tuple(ends.call_facts(one.call, one.step, one.step.group.title if differ else "") for one in ours)
        usual = {one.rank: tag for one in ours if (tag := self._usual_tag(one)) not in (None, one.call.tag)}
        facts: dict[str, Any] = {"usual_tag": next(iter(usual.values()))} if len(usual) == 1 else {}
        ranks = (*usual,) if len(usual) == 1 else ()
        facts |= {"lines": tuple(one.call.source for one in sorted(ours, key=lambda one: one.rank not in ranks))}
        return self._unmatched(
            "passing_by", ours, ranks, waits=calls, waited_s=ends.waited_s(self.evidence, ours), **facts
        )

    def _usual_tag(self, wait: ends.Wait) -> int | None:
        """Return the tag that a message has in the loop of its rank, or that other ranks use at its line.

        In a loop, the tag is the same in each round, or changes by the same number. None if neither is known.
        """
        call = wait.call
        alike = {
            rank: [c for c in self.evidence.calls(rank) if (c.op, c.path) == (call.op, call.path)]
            for rank in self.evidence.ranks
        }
        turn = next((n for n, one in enumerate(alike[wait.rank]) if one is call), 0)
        before = [one.tag for one in alike[wait.rank][:turn] if one.peer == call.peer]
        if len(before) >= _FEWEST_ROUNDS:
            changes = {after - tag for tag, after in pairwise(before)}
            return before[-1] + changes.pop() if len(changes) == 1 else None
        there = {ours[turn].tag for rank, ours in alike.items() if rank != wait.rank and len(ours) > turn}
        return there.pop() if len(there) == 1 else None

    def _nobody_there(self, wait: ends.Wait) -> Finding:
        """Return a finding on a message whose other end waits in something else."""
        source, destination = wait.step.source, wait.step.destination  # one of them may be any rank
        came = [step for step in self.evidence.steps if step.state == "completed" and step.message]
        before = sum(source in (None, one.source) and destination in (None, one.destination) for one in came)
        ranks: tuple[int, ...] = ()  # the other end may have skipped its call
        ours = (wait, *(self.waits[rank] for rank in wait.on if rank in self.waits))
        facts: dict[str, Any] = {"did": self.did(wait.on), "before": 0 if self.evidence.trace.is_tail else before}
        if skipped := self._left_out(wait) or self._made_by_others(wait):
            lines = (skipped["left_out"].source, *(one.call.source for one in ours))
            ranks, facts = wait.on, {**facts, **skipped, "lines": lines}
        return self._unmatched("nobody_there", ours, ranks, **facts)

    def _left_out(self, wait: ends.Wait) -> dict[str, Any]:
        """Return the call that the other end of a message skipped, and whether its loop would have made it next.

        Otherwise it skipped the call once and continued with the next one. Empty if it skipped nothing.
        """
        calls = self.evidence.calls(wait.on[0]) if len(wait.on) == 1 else []
        if calls and calls[-1].state == "unfinished":
            calls = calls[:-1]  # drop what it did instead
        answers = [c.peer == wait.rank and c.operation.sends == wait.call.operation.receives for c in calls]
        beats = [(call.op, call.source) for call in calls]
        if (before := find_due_call(beats)) is not None and answers[before]:
            return {"left_out": ends.call_facts(calls[before], wait.step), "left_next": True}
        once = [calls[position] for position in find_skipped_calls(beats) if answers[position]]
        return {"left_out": ends.call_facts(once[0], wait.step)} if len(once) == 1 else {}

    def _made_by_others(self, wait: ends.Wait) -> dict[str, Any]:
        """Return the call that all ranks but the other end of a message made one time more at a line, and these ranks.

        Such calls are in the same direction, to the rank at the same distance.
        """
        ranks = wait.step.group.ranks
        if len(wait.on) != 1 or wait.on[0] not in ranks or wait.rank not in ranks or len(ranks) < _FEWEST:
            return {}
        missing, size = wait.on[0], len(ranks)
        wraps = abs(ranks.index(wait.rank) - ranks.index(missing)) > 1 and {wait.rank, missing} == {ranks[0], ranks[-1]}
        distance, receives = (ranks.index(wait.rank) - ranks.index(missing)) % size, wait.call.operation.receives
        made = {rank: Counter[tuple[str, str]]() for rank in ranks}
        for rank, counts in made.items():
            for call in self.evidence.calls(rank):
                to = ranks.index(call.peer) if call.peer in ranks else None
                if call.operation.sends == receives and to == (ranks.index(rank) + distance) % size:
                    counts[call.op, call.source] += 1
        others = tuple(rank for rank in ranks if rank != missing)
        for op, source in made[others[0]]:
            before = made[missing][op, source]  # without any, ranks may be a line, which has ends, and no ring
            if min(made[rank][op, source] for rank in others) > before and (before or not wraps):
                direction: Literal["to", "from"] = "to" if receives else "from"
                skipped = f.CallFacts(rank=missing, name=op, source=source, direction=direction, peer=wait.rank)
                return {"left_out": skipped, "made_by": others}
        return {}

    def _neighbour(self, wait: ends.Wait) -> Finding | None:
        """Return a finding on a rank that addresses another neighbor than the others at the same line.

        With three or more ranks, most address the rank at the same distance from their own, and always do so there.
        """
        ranks, wanted = wait.step.group.ranks, (wait.call.op, wait.call.source, wait.call.group)
        calls, size = {rank: self.evidence.calls(rank) for rank in ranks}, len(ranks)
        alike = {rank: [c for c in ours if (c.op, c.source, c.group) == wanted] for rank, ours in calls.items()}
        if size < _FEWEST or self.evidence.trace.is_tail or wait.call not in alike.get(wait.rank, ()):
            return None
        turn = alike[wait.rank].index(wait.call)
        there = {rank: ours[turn].peer for rank, ours in alike.items() if len(ours) > turn}
        meant = {rank: (peer - rank) % size for rank, peer in there.items() if peer is not None}
        usual, deviating = find_majority(meant)
        if usual is None or deviating != (wait.rank,) or len(meant) != size:
            return None
        others = tuple(rank for rank in meant if rank != wait.rank)
        if any(call.peer != (rank + usual) % size for rank in others for call in alike[rank]):
            return None
        return self._unmatched("neighbour", (wait,), deviating, usual_distance=usual, group_size=size, alike=others)

    def _unmatched(self, how: _How, ours: tuple[ends.Wait, ...], ranks: tuple[int, ...] = (), **facts: Any) -> Finding:
        common: dict[str, Any] = {
            "waits": tuple(wait.facts for wait in ours),
            "waited_s": ends.waited_s(self.evidence, ours[:1]),
            "others": tuple(wait.rank for wait in ours if wait.rank not in ranks),
            "step": ours[0].step.title,
            "lines": tuple(wait.call.source for wait in ours),
            "seconds": ends.waited_s(self.evidence, ours[:2]),
        }
        return UnmatchedMessage(how=how, ranks=ranks, **{**common, **facts})


# -- who is to blame if one side ended, and as many ranks needed it


def blame_side(evidence: Evidence, waiting: RankFacts, gone: Sequence[int]) -> Sequence[int]:
    """Return which of them is to blame if ranks had ended and as many others needed them; nobody if unknown.

    Ranks ended too early at a line that the other one was not in, at the line of its call, in the middle of a loop, or
    before a message of theirs.
    """
    hit, stack = evidence.broken_call(waiting.rank), waiting.stack or waiting.traceback
    exits = [one for one in gone if ":" in (at := evidence.exit_line(one)) and _is_early(at, hit, stack)]
    if exits or hit is None:
        return exits
    end = _left_by(evidence, *hit) if hit[1].message else None
    return [end] if end is not None else [one for one in left_loop(hit[1], evidence) if one in gone]


def _is_early(at: str, hit: tuple[Call, Step] | None, stack: str) -> bool:
    inside = re.escape(at.replace(":", '", line '))
    return (hit is not None and at == hit[0].source) or not re.search(rf"{inside}\b", stack)


def _left_by(evidence: Evidence, call: Call, step: Step) -> int | None:
    """Return which end is to blame for a message after the other end had ended; None if unknown.

    If the other end had not begun the call, it is to blame only if it called less than most ranks, and this end called
    as much as most; if only this end sent the other one as many messages as it received from it; or if this end asked
    the same of several ranks, and only the other end did not answer; or if several ranks needed it. This end is to
    blame if it called one time more than most ranks, and the other end as much as most.
    """
    rank = call.rank
    others = [one for one in (step.source, step.destination) if one is not None and one != rank]
    other = others[0] if len(others) == 1 else -1
    if other not in evidence.ranks or not evidence.ranks[other].left:
        return None
    calls = {one: evidence.trace.ranks[one].skipped + len(evidence.calls(one)) for one in evidence.ranks}
    usual, _ = find_majority(calls)
    if usual is not None and calls[other] == usual == calls[rank] - 1:
        return rank
    called_less = usual is not None and calls[other] < usual == calls[rank]
    pair = ((rank, other), (other, rank))
    mine, theirs = (Counter(call.op for call in evidence.calls(one) if call.peer == peer) for one, peer in pair)
    uneven = mine["send"] == mine["recv"] and theirs["send"] != theirs["recv"]
    asked = Counter(one.peer for one in evidence.calls(rank) if (one.op, one.path) == (call.op, call.path))
    same = len(asked) > 1 and len({*asked.values()}) == 1 and not evidence.trace.is_tail
    broken = [hit for one in evidence.ranks if (hit := evidence.broken_call(one)) is not None and hit[1].message]
    needed_by = [call.rank for call, one in broken if other in one.missing]
    return other if other in step.calls or called_less or uneven or same or len(needed_by) > 1 else None


# -- in words


def _neighbour(facts: UnmatchedMessage, wait: f.CallFacts) -> str:
    verb, plural_verb = ("sends to", "send to") if wait.direction == "to" else ("receives from", "receive from")
    distance = f"the rank {facts.usual_distance} higher"
    whom = {1: "the next rank", facts.group_size - 1: "the previous rank"}.get(facts.usual_distance, distance)
    others = f"{name_ranks(facts.alike)} {plural_verb} {whom}"
    return f"rank {wait.rank} {verb} rank {wait.peer}{render_lines([wait.source])}, but {others}"


def _passing_by(facts: UnmatchedMessage, send: f.CallFacts, receive: f.CallFacts) -> str:
    tags, groups = send.tag != receive.tag, send.group != receive.group

    def does(call: f.CallFacts, verb: str, peer: int) -> str:
        which = f"{f' with tag {call.tag}' if tags else ''}{f' in {call.group}' if groups else ''}"
        return f"rank {call.rank} {verb} rank {peer}{which}{render_lines([call.source])}"

    differ = join_words([*(["tags"] if tags else []), *(["groups"] if groups else [])])
    both = f"{does(send, 'sends to', receive.rank)}, and {does(receive, 'receives from', send.rank)}"
    return f"{both}: the {differ} differ, so both wait{render_waited(facts.waited_s, ', for {} now')}"
