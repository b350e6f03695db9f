"""A run as it goes on, by its record: what every rank does now, what has happened, and how held ranks go on."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lab.diagnosis.ends import call_facts
from lab.diagnosis.wording import describe_call
from lab.features.html.contents import clean_line
from lab.features.html.timelines import end_text, has_failed, note_text
from lab.features.watch.tail import News, TraceTail
from lab.frozen import Frozen
from lab.node.messages import agent as messages
from lab.record.events import Cancelled, Event, NodeLost, NodeTroubled, Restarted, TimedOut
from lab.record.layout import EVENTS
from lab.record.read import IndexReader, LineJoiner, Piece, Record, parse_event, read_output
from lab.record.record_files import MOST_LINES_BYTES, open_file
from lab.record.result import Result
from lab.report.table import MANY, group_by_kind
from lab.run.agent_channels import AgentChannels
from lab.run.options import Companion
from lab.trace.model import Call, Mark, RankTrace
from lab.trace.steps import Step
from lab.words import clip_end, format_duration, join_words, name_ranks

_RECENT = 8
_LONGEST = 300
"""What a script can name may be as long as it likes."""


@dataclass
class Life:
    """What is known of a rank besides its calls."""

    started: float | None = None
    """Unix time."""
    halted: str = ""
    """The signal that stopped it."""
    ended: messages.Exited | None = None
    reported_wait: int = 0
    """Index of the latest call of which it was reported that the rank waits in it."""


def alike_ranks(ranks: Sequence[RankNow], most: int = MANY) -> list[list[RankNow]]:
    """Of more ranks than that, those together that do the same at the same place, the fewest first."""

    def kind(rank: RankNow) -> tuple[object, ...]:
        return rank.told, rank.state, rank.place, rank.bad, tuple(one for one in rank.waits_for if one != rank.rank)

    return sorted(group_by_kind(ranks, kind, most), key=len)


class CallNow(Frozen):
    """A call of a rank."""

    text: str
    """`all_reduce #3`, `recv from rank 1`."""
    op: str
    place: str
    """The line of the script, `file:line`; empty where it is not known."""
    state: str
    """`held`, `inside`, `completed`, `failed`."""
    took: str
    """For how long; empty where it is not over."""


class RankNow(Frozen):
    """A rank."""

    rank: int
    node: str
    state: str
    """`starting`, `outside` any call, `inside` a call, `held` at one, `halted` by a signal, `ended`."""
    told: str
    """In words: `in all_reduce #3`, `in backward`, `in no call`, `exit 0`; `running` where calls are not on record."""
    place: str = ""
    """The line of the script that it is at, as far as calls tell it."""
    since_s: float | None = None
    """For how long; None where nobody knows."""
    waits_for: tuple[int, ...] = ()
    """Ranks without which its call cannot end."""
    bad: bool = False
    """Whether it ended, and not as it should."""
    recent: tuple[CallNow, ...] = ()
    """Its last calls, oldest first."""


class Line(NamedTuple):
    """A line that a rank printed, as the page shows it."""

    n: int
    """From 1, in the order of arrival."""
    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error."""
    time: str
    """Seconds since the run began."""
    text: str


class Now(Frozen):
    """A run at one moment."""

    run: str
    scenario: str
    engine: str
    ranks: tuple[RankNow, ...]
    elapsed_s: float | None
    """Seconds since the first worker was let go; None before."""
    over: bool = False
    verdict: str = ""
    """Empty while the run goes on."""
    reason: str = ""
    remarks: tuple[str, ...] = ()
    """What keeps the view from being whole, a sentence each."""
    next: str = ""
    """What a key press lets go: `all_reduce #3`; empty where nobody is held."""
    next_steps: tuple[str, ...] = ()
    """The titles of the steps that it lets go, where they are whole."""
    stepping: bool = False
    """Whether ranks are held before each call."""


KEPT_LINES = 400
_LOOK_BYTES = 1 << 20
_LONGEST_HELD_BYTES = 1 << 16
"""A line longer than this is taken in pieces."""
_LONGEST_NOTE = 200
_WAIT_S = 1.0
"""Waiting for so long is something that happened."""


class Happening(NamedTuple):
    """Something that happened, for whoever reads along."""

    time_s: float
    """Seconds since the run began."""
    what: str
    """`started`, `begin`, `end`, `held`, `waits`, `output`, `note`, `exited`, `node`, `attempt`, `timed out`."""
    rank: int | None
    text: str
    facts: Mapping[str, Any] = {}


class Follower:
    """Looks at the record of a run again and again; every look takes a bounded time.

    Args:
        record: of the run, which has begun.
        stepping: whether its ranks are held before each call.
    """

    def __init__(self, record: Record, *, stepping: bool = False) -> None:
        self.record = record
        self.stepping = stepping
        self.tail = TraceTail(record)
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.happened: list[Happening] = []
        """Since the last look, in the order of time as far as that is known."""
        self.steps: list[Step] = []
        self.ahead: list[Step] = []
        """Steps that ranks are held at."""
        self.began: float | None = None
        """Unix time at which the first worker was let go."""
        self.attempt = record.number
        """Which attempt it follows."""
        self._result: Result | None = None
        self._printed = self._event_position = 0
        self._index, self._joiner = IndexReader(), LineJoiner(_LONGEST_HELD_BYTES)
        self._lives: dict[int, Life] = {}
        self._plan = record.plan()
        self._met: dict[int, str] = {}
        """By rank: its node, where a launcher decides that."""

    def go_on(self) -> Follower:
        """The workers were begun anew: take what else was said before, and return who follows the next attempt."""
        self.finish()
        following = Follower(self.record, stepping=self.stepping)
        following.began, following.lines, following._printed = self.began, self.lines, self._printed
        return following

    def look(self, clock: float) -> tuple[Now, bool]:
        """What the run does at this Unix time, and whether more is waiting to be read."""
        self.happened = []
        over = not self.record.in_progress  # asked first: what is written until then is read below
        if not self._plan.workers:
            self._plan = self.record.plan()
        is_read = self._read(self.record)
        more = self.tail.look() or is_read
        self.steps, self.ahead = self.tail.steps(), self.tail.steps_ahead()
        step_of = {id(call): step for step in (*self.ahead, *self.steps) for call in step.calls.values()}
        for news in self.tail.news:
            what, text, facts = _describe(news, step_of)
            self._happen(news.time + self.tail.trace.origin, what, news.call.rank, text, **facts)
        if over and not more and self._result is None and self.record.complete:
            self._result = self.record.result()
        now = self._now(clock, step_of, over=over and not more)
        self.happened.sort(key=lambda happening: happening.time_s)
        return now, more

    # -- what is new

    def _read(self, record: Record) -> bool:
        """Take what has come of events and output; returns whether that was anything."""
        events = self._read_events(record)
        for event in events:
            self._handle(event)
        pieces = [*read_output(record.path, self._index, _LOOK_BYTES)]
        for line in (line for piece in pieces for line in self._joiner.join(piece)):
            self._print(line)
        return bool(events or pieces)

    def _read_events(self, record: Record) -> list[Event]:
        """The facts since the last time, of so many bytes."""
        try:
            with open_file(record.path, EVENTS, MOST_LINES_BYTES) as file:
                file.seek(self._event_position)
                lines = [line for line in file.readlines(_LOOK_BYTES) if line.endswith(b"\n")]
        except OSError:
            return []
        self._event_position += sum(map(len, lines))
        return [event for event in map(parse_event, lines) if event is not None]

    def _handle(self, event: Event) -> None:
        if getattr(event, "rank", None) == messages.STARTER:
            return
        if isinstance(event, (TimedOut, Cancelled, messages.Stack)):
            self.tail.stopped = min(self.tail.stopped, event.time)
        match event:
            case messages.Started():
                self._life(event.rank).started = event.time
                if event.attempt:
                    self._met[event.rank] = event.node
                self.began = min(event.time, self.began or event.time)
                self._happen(event.time, "started", event.rank, f"started on {event.node}")
            case messages.Halted():
                self._life(event.rank).halted = event.signal
                text = f"was stopped by {event.signal}" if event.signal else "goes on"
                self._happen(event.time, "halted", event.rank, text)
            case messages.Exited():
                self._life(event.rank).ended = event
                self._happen(event.time, "exited", event.rank, end_text(event), code=event.code, signal=event.signal)
            case messages.Note():
                self._happen(event.time, "note", event.rank, note_text(event), name=event.name, value=event.value)
            case NodeLost() | NodeTroubled():
                self._happen(event.time, "node", None, f"{event.node} {event.how or 'works again'}")
            case Restarted():
                self._happen(event.time, "attempt", None, f"attempt {self.attempt + 1} begins")
            case TimedOut():
                self._happen(event.time, "timed out", None, "the time limit passed")

    def _print(self, line: Piece) -> None:
        self._printed += 1
        text = clean_line(line.data)
        self.lines.append(Line(self._printed, line.rank, line.stream, f"{self._since(line.time):.3f}", text))
        self._happen(line.time, "output", line.rank, text, stream=line.stream)

    def finish(self) -> None:
        """Take what else was said, and what was printed without a newline at its end; nothing more comes."""
        self.happened = []
        self._read(self.record.attempt(self.attempt))
        for line in self._joiner.rest():
            self._print(line)

    def _happen(self, time: float, what: str, rank: int | None, text: str, /, **facts: Any) -> None:
        self.happened.append(Happening(self._since(time), what, rank, text, facts))

    # -- what is now

    def _now(self, clock: float, step_of: Mapping[int, Step], *, over: bool) -> Now:
        result = self._result
        workers = sorted(self._met.items() or ((worker.rank, worker.node) for worker in self._plan.workers))
        ends = [life.ended.time for life in self._lives.values() if life.ended is not None]
        until = max(ends, default=clock) if over else clock
        passed_over = "The ranks call faster than this view can follow: calls were passed over."
        remarks = [passed_over] if self.tail.passed_over else []
        cut = (rank for rank in self.tail.trace.ranks.values() if rank.cut)
        remarks += [f"Rank {rank.rank}: recording ended early: {rank.cut}" for rank in cut]
        if over and result is None:
            remarks.append(self.record.result().reason)
        return Now(
            run=self.record.run,
            scenario=self._plan.scenario or self.record.run,
            engine=self._plan.engine,
            ranks=tuple(self._rank(rank, node, clock, step_of, over) for rank, node in workers),
            elapsed_s=None if self.began is None else max(0.0, until - self.began),
            over=over,
            verdict=result.verdict if result else "",
            reason=result.reason if result else "",
            remarks=tuple(remarks),
            stepping=self.stepping,
        )

    def _rank(self, rank: int, node: str, clock: float, step_of: Mapping[int, Step], over: bool) -> RankNow:
        """What a rank does: ended, halted, held at a call, inside one that holds it up, or outside of calls."""
        life, trace, held = self._life(rank), self.tail.trace.ranks.get(rank), self.tail.held.get(rank)
        shown = [*(trace.calls[-_RECENT:] if trace is not None else ()), *([held] if held is not None else ())]
        state, words = "outside", "running"
        inside: Call | Mark | None = None
        since: float | None = None
        waits_for: tuple[int, ...] = ()
        call = _blocking_call(trace, step_of)
        if life.ended is not None:
            state, words = "ended", end_text(life.ended)
        elif over or life.started is None:
            state, words = "starting", "its end is not known" if over else "starting"
        elif life.halted:
            state, words = "halted", f"stopped by {life.halted}"
        elif held is not None:
            state, words, inside = "held", f"held before {_call_words(held, step_of)}", held
        elif call is not None:
            state, words, inside = "inside", f"in {_call_words(call, step_of)}", call
            waits_for = step_of[id(call)].lacks(call) if id(call) in step_of else ()
        elif trace is not None and trace.recorder and not trace.cut:  # else nobody knows more than that it runs
            inside = next((mark for mark in reversed(trace.marks) if mark.end is None), None)
            words = "in no call" if inside is None else f"in {inside.name}"
            since = max((call.end for call in shown if call.end is not None), default=trace.first)
        since, origin = since if inside is None else inside.begin, self.tail.trace.origin
        now = RankNow(
            rank=rank,
            node=node,
            state=state,
            told=clip_end(words, _LONGEST),
            place="" if inside is None else clip_end(inside.source, _LONGEST),
            since_s=None if since is None else max(0.0, clock - origin - since),
            waits_for=waits_for,
            bad=life.ended is not None and has_failed(life.ended),
            recent=tuple(
                CallNow(
                    text=_call_words(one, step_of),
                    op=clip_end(one.op, _LONGEST),
                    place=clip_end(one.source, _LONGEST),
                    state="held" if one is held else "inside" if one.state == "unfinished" else one.state,
                    took="" if one.end is None else format_duration(max(0.0, one.end - one.begin)),
                )
                for one in shown[-_RECENT:]
            ),
        )
        if call is not None and waits_for and (now.since_s or 0.0) > _WAIT_S and life.reported_wait != call.index:
            life.reported_wait = call.index
            text = f"waits for {name_ranks(waits_for)} {now.told}{f' at {now.place}' if now.place else ''}"
            self._happen(clock, "waits", rank, text, **{"for": list(waits_for)})
        return now

    def _life(self, rank: int) -> Life:
        return self._lives.setdefault(rank, Life())

    def _since(self, time: float) -> float:
        """Seconds since the run began, of a Unix time."""
        return max(0.0, time - (self.began or time))


def _describe(news: News, step_of: Mapping[int, Step]) -> tuple[str, str, dict[str, Any]]:
    """What a trace reports, as something that happened: what, in words, and as facts."""
    call, words, place = news.call, _call_words(news.call, step_of), clip_end(news.call.source, _LONGEST_NOTE)
    where = f"{words} at {place}" if place else words
    facts = {"op": clip_end(call.op, _LONGEST_NOTE), "place": place, "call": call.index}
    if news.kind != "end":
        return (
            ("begin", f"enters {where}", facts) if news.kind == "begin" else ("held", f"is held before {where}", facts)
        )
    ended = f"fails in {words}: {call.error}" if call.error else f"leaves {words}"
    return "end", ended, {**facts, "took_s": round((call.end or call.begin) - call.begin, 9), "error": call.error}


def _call_words(call: Call, step_of: Mapping[int, Step]) -> str:
    """A call in words, also where its step is not known."""
    if step := step_of.get(id(call)):
        return clip_end(describe_call(call_facts(call, step)), _LONGEST)
    return clip_end(call.op if call.seq is None else f"{call.op} #{call.seq}", _LONGEST)


def _blocking_call(trace: RankTrace | None, step_of: Mapping[int, Step]) -> Call | None:
    """The call that holds a rank up: one without a handle, or, while the script waits for a handle, one that has it."""
    if trace is None:
        return None
    unfinished = [call for call in trace.calls if call.state == "unfinished"]
    if own := [call for call in unfinished if not call.hands_out]:
        return own[-1]
    if not unfinished or all(wait.end is not None for wait in trace.waits):
        return None
    lacking = (call for call in unfinished if (step := step_of.get(id(call))) and step.missing)
    return next(lacking, unfinished[0])


LOOPBACK = "127.0.0.1"
LONGEST_HOLD_S = 3600.0
"""Whoever holds ranks for longer without a word is not there any more: the time limit counts again."""


_PATIENCE_S = 3.0
"""So long a press waits for ranks that are on their way."""


class Watched(Companion):
    """Handed to a run with its options; lets its ranks go on as keys are pressed, on a terminal or on a page.

    What whoever watches presses, and what the run asks, may come from any thread.

    Args:
        step: whether every rank is held before each call that is recorded, until it is let go.
    """

    def __init__(self, *, step: bool = False) -> None:
        self.step = step
        self.path: Path | None = None
        """The record; another one where the run was begun again because its cluster was broken."""
        self._lock = threading.Lock()
        self._pressed: float | None = None
        self._running_on = False
        self._let_go: dict[int, int] = {}
        """By rank: the last of its calls that was let go."""
        self._asked: dict[int, int] = {}
        self._held_since: float | None = None
        self._held_s = 0.0
        self._bell, self._button = socket.socketpair()
        for end in (self._bell, self._button):
            end.setblocking(False)

    # -- for whoever watches

    def press(self) -> None:
        """Let the next step go on, now or as soon as its ranks have come."""
        with self._lock:
            self._pressed = time.monotonic()

    def run_on(self) -> None:
        """Hold nobody from now on."""
        self._running_on = True
        self.tell_held(held=False)
        self.let_go({messages.EVERY_RANK: messages.RUN_ON})

    def begin_anew(self) -> None:
        """The workers were begun anew: no call of theirs was let go yet."""
        self._let_go = {}
        if self._running_on:
            self.run_on()

    def look(self, now: Now, follower: Follower) -> Now:
        """Do what was asked for, as far as it can be done now; what is next is added to the view."""
        ranks = {} if self._running_on or now.over else follower.tail.held
        self.tell_held(held=bool(ranks))
        if self._running_on:
            return replace(now, stepping=False)
        held = {rank: call for rank, call in follower.tail.held.items() if call.index > self._let_go.get(rank, 0)}
        steps, calls = whole_steps(follower.ahead, held)
        words, is_quiet = join_words(step.title for step in steps), _quiet(now, held)
        if held and not calls:
            calls = list(held.values())
            words = (
                f"{name_ranks(held)}, {'though no step has all its ranks' if is_quiet else 'once the others have come'}"
            )
        if (pressed := self._pressed) is not None:
            is_late = time.monotonic() - pressed > _PATIENCE_S
            goes = calls and (steps or is_quiet or is_late)
            if goes:
                indices = {call.rank: call.index for call in calls}
                self._let_go |= indices
                self.let_go(indices)
                words = ""
            with self._lock:
                if (goes or is_late) and self._pressed == pressed:  # else it was pressed again
                    self._pressed = None
        return replace(now, next=words, next_steps=tuple(step.title for step in steps))

    def let_go(self, calls: Mapping[int, int]) -> None:
        """Let ranks go on that are held, each at the call of this index."""
        with self._lock:
            self._asked.update(calls)
            self._count_held(held=self._held_since is not None)
            with suppress(OSError):  # it rings already, or the run is over
                self._button.send(b".")

    def tell_held(self, *, held: bool) -> None:
        """Say whether a rank is held now."""
        with self._lock:
            if held != (self._held_since is not None):
                self._count_held(held=held)

    def _count_held(self, *, held: bool) -> None:
        self._held_s += self._holding_s()
        self._held_since = time.monotonic() if held else None

    # -- for the run

    @property
    def held_s(self) -> float:
        """For how long ranks have been held, all in all: so much longer the run may take."""
        with self._lock:
            return self._held_s + self._holding_s()

    def _holding_s(self) -> float:
        return 0.0 if self._held_since is None else min(LONGEST_HOLD_S, time.monotonic() - self._held_since)

    def fileno(self) -> int:
        """Becomes readable when there is something to take."""
        return self._bell.fileno()

    def describe(self, record: Path) -> Mapping[str, Any]:
        """Note where the record is; the plan says whether the run goes step by step."""
        self.path = record
        return {"stepped": True} if self.step else {}

    def claim(self, agents: AgentChannels, node: str) -> None:
        """Have the agent of a node send traces soon, and hold ranks where the run goes step by step."""
        agents.send(node, messages.Follow(agents.run, self.step))

    def follow_run(self, agents: AgentChannels, record: Callable[[Event], object], done: Callable[[], object]) -> None:
        """Have what is let go passed on to the agents of the run, for as long as it listens to them."""
        agents.add_reader(self.fileno(), lambda: self._pass_on(agents))

    def _pass_on(self, agents: AgentChannels) -> None:
        for rank, call in self.take().items():
            agents.send_all(messages.Release(agents.run, rank, "step", str(call)))

    def take(self) -> dict[int, int]:
        """What was let go since the last time."""
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        with self._lock:
            asked, self._asked = self._asked, {}
        return asked


def whole_steps(ahead: Sequence[Step], held: Mapping[int, Call]) -> tuple[list[Step], list[Call]]:
    """The steps to which all their ranks have come, and those of their calls that are held."""
    whole, calls = [], []
    for step in ahead:
        ours = [call for rank, call in step.calls.items() if held.get(rank) is call]
        if ours and not (step.missing or (step.message and step.source is None)):
            whole.append(step)
            calls += ours
    return whole, calls


def _quiet(now: Now, held: Collection[int]) -> bool:
    """Whether nobody comes to a call before somebody is let go; who has just been let go is on the way."""
    return all(
        rank.rank in held or rank.state in ("ended", "halted") or (rank.state == "inside" and rank.waits_for)
        for rank in now.ranks
    )
