"""A run in progress, read from its record: what every rank does, what has happened, and how held ranks continue."""

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
from lab.report.live import fit_columns
from lab.report.sanitize import sanitize_text
from lab.report.style import MANY, group_by_kind
from lab.run.agent_channels import AgentChannels
from lab.run.options import Companion
from lab.trace.model import Call, Phase, RankTrace
from lab.trace.steps import Step
from lab.words import clip_end, format_duration, group_pairs, join_words, name_ranks

_RECENT = 8
_LONGEST = 300
"""Characters; a script can choose names of any length."""


@dataclass
class Life:
    """The state of a rank apart from its calls."""

    started: float | None = None
    """Unix time."""
    halted: str = ""
    """The signal that stopped it."""
    ended: messages.Exited | None = None
    reported_wait: int = 0
    """Index of the latest call whose wait was reported."""


def group_ranks(ranks: Sequence[RankNow], most: int = MANY) -> list[list[RankNow]]:
    """Group ranks that do the same at the same line if there are more than `most`; the smallest groups come first."""

    def kind(rank: RankNow) -> tuple[object, ...]:
        return rank.activity, rank.state, rank.location, rank.bad, frozenset(rank.waits_for) - {rank.rank}

    return sorted(group_by_kind(ranks, kind, most), key=len)


class CallNow(Frozen):
    """A call of a rank."""

    text: str
    """`all_reduce #3`, `recv from rank 1`."""
    op: str
    location: str
    """The line of the script, `file:line`; empty if unknown."""
    state: str
    """`held`, `inside`, `completed`, `failed`."""
    took: str
    """Its duration; empty if it is not over."""


class RankNow(Frozen):
    """A rank."""

    rank: int
    node: str
    state: str
    """`starting`, `outside` any call, `inside` a call, `held` at one, `halted` by a signal, `ended`."""
    activity: str
    """In words: `in all_reduce #3`, `in backward`, `in no call`, `exit 0`; `running` if its calls are not recorded."""
    location: str = ""
    """The line of the script that it is at, as far as its calls show it."""
    since_s: float | None = None
    """Seconds that this has lasted; None if unknown."""
    waits_for: tuple[int, ...] = ()
    """Ranks that its call needs to complete."""
    bad: bool = False
    """Whether it failed."""
    recent: tuple[CallNow, ...] = ()
    """Its latest calls, oldest first."""


class Line(NamedTuple):
    """A line that a rank printed, as the page shows it."""

    n: int
    """Number in the order of arrival, from 1."""
    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error."""
    time: str
    """Seconds since the run began."""
    text: str


class Now(Frozen):
    """The state of a run at one moment."""

    run: str
    scenario: str
    engine: str
    ranks: tuple[RankNow, ...]
    elapsed_s: float | None
    """Seconds since the first worker started; None before."""
    over: bool = False
    verdict: str = ""
    """Empty while the run is in progress."""
    reason: str = ""
    remarks: tuple[str, ...] = ()
    """Reasons why the view is incomplete, a sentence each."""
    next: str = ""
    """What a key press releases: `all_reduce #3`; empty if no rank is held."""
    next_steps: tuple[str, ...] = ()
    """The titles of the complete steps that it releases."""
    stepping: bool = False
    """Whether ranks are held before each call."""


KEPT_LINES = 400
_POLL_BYTES = 1 << 20
_LONGEST_HELD_BYTES = 1 << 16
"""A longer line is read in pieces."""
_WAIT_S = 1.0
"""A longer wait is reported as an event."""


class Happening(NamedTuple):
    """An event of a run, for readers."""

    time_s: float
    """Seconds since the run began."""
    what: str
    """`started`, `begin`, `end`, `held`, `waits`, `output`, `note`, `exited`, `node`, `attempt`, `timed out`."""
    rank: int | None
    text: str
    facts: Mapping[str, Any] = {}


class Follower:
    """Polls the record of a run; every poll takes a bounded time.

    Args:
        record: The record of the run, which has begun.
        stepping: Whether its ranks are held before each call.
        behind_bytes: See `TraceTail`.
    """

    def __init__(self, record: Record, *, stepping: bool = False, behind_bytes: int | None = None) -> None:
        self.record, self.stepping = record, stepping
        self.tail = TraceTail(record, behind_bytes)
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.happened: list[Happening] = []
        """Events since the last poll, in the order of time as far as it is known."""
        self.steps: list[Step] = []
        self.ahead: list[Step] = []
        """Steps that ranks are held at."""
        self.began: float | None = None
        """Unix time at which the first worker started."""
        self.attempt = record.number
        """Number of the attempt that it follows."""
        self._result: Result | None = None
        self._printed = self._event_position = 0
        self._index, self._joiner = IndexReader(), LineJoiner(_LONGEST_HELD_BYTES)
        self._lives: dict[int, Life] = {}
        self._plan = record.plan()
        self._met: dict[int, str] = {}
        """The node of each rank, if a launcher decides it."""

    def follow_next_attempt(self) -> Follower:
        """Read the rest of this attempt, and return a follower of the next one."""
        self.finish()
        follower = Follower(self.record, stepping=self.stepping)
        follower.began, follower.lines, follower._printed = self.began, self.lines, self._printed
        return follower

    def poll(self, clock: float) -> tuple[Now, bool]:
        """Return the state of the run at this Unix time, and whether more is waiting to be read."""
        self.happened = []
        over = not self.record.in_progress  # checked first: what was written before is read below
        if not self._plan.workers:
            self._plan = self.record.plan()
        has_news = self._read(self.record)
        is_behind = self.tail.poll() or has_news
        self.steps, self.ahead = self.tail.steps(), self.tail.steps_ahead()
        step_of = {id(call): step for step in (*self.ahead, *self.steps) for call in step.calls.values()}
        for news in self.tail.news:
            what, text, facts = _describe_news(news, step_of)
            self._report(news.time + self.tail.trace.origin, what, news.call.rank, text, **facts)
        if over and not is_behind and self._result is None and self.record.complete:
            self._result = self.record.result()
        now = self._now(clock, step_of, over=over and not is_behind)
        self.happened.sort(key=lambda happening: happening.time_s)
        return now, is_behind

    # -- news

    def _read(self, record: Record) -> bool:
        """Read new events and output; return whether there were any."""
        events = self._read_events(record)
        for event in events:
            self._handle(event)
        pieces = [*read_output(record.path, self._index, _POLL_BYTES)]
        for line in (line for piece in pieces for line in self._joiner.join(piece)):
            self._add_line(line)
        return bool(events or pieces)

    def _read_events(self, record: Record) -> list[Event]:
        """Return the events since the last time, from a limited number of bytes."""
        try:
            with open_file(record.path, EVENTS, MOST_LINES_BYTES) as file:
                file.seek(self._event_position)
                lines = [line for line in file.readlines(_POLL_BYTES) if line.endswith(b"\n")]
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
                self._report(event.time, "started", event.rank, f"started on {event.node}" if event.node else "started")
            case messages.Halted():
                self._life(event.rank).halted = event.signal
                text = f"was stopped by {event.signal}" if event.signal else "continues"
                self._report(event.time, "halted", event.rank, text)
            case messages.Exited():
                self._life(event.rank).ended = event
                self._report(event.time, "exited", event.rank, end_text(event), code=event.code, signal=event.signal)
            case messages.Note():
                self._report(event.time, "note", event.rank, note_text(event), name=event.name, value=event.value)
            case NodeLost() | NodeTroubled():
                self._report(event.time, "node", None, f"{event.node} {event.how or 'works again'}")
            case Restarted():
                self._report(event.time, "attempt", None, f"attempt {self.attempt + 1} begins")
            case TimedOut():
                self._report(event.time, "timed out", None, "the time limit passed")

    def _add_line(self, line: Piece) -> None:
        self._printed += 1
        text = clean_line(line.data)
        self.lines.append(Line(self._printed, line.rank, line.stream, f"{self._since(line.time):.3f}", text))
        self._report(line.time, "output", line.rank, text, stream=line.stream)

    def finish(self) -> None:
        """Read the rest, including output without a newline at its end."""
        self.happened = []
        self._read(self.record.attempt(self.attempt))
        for line in self._joiner.rest():
            self._add_line(line)

    def _report(self, time: float, what: str, rank: int | None, text: str, /, **facts: Any) -> None:
        self.happened.append(Happening(self._since(time), what, rank, text, facts))

    # -- the current state

    def _now(self, clock: float, step_of: Mapping[int, Step], *, over: bool) -> Now:
        result = self._result
        workers = sorted(self._met.items() or ((worker.rank, worker.node) for worker in self._plan.workers))
        ends = [life.ended.time for life in self._lives.values() if life.ended is not None]
        until = max(ends, default=clock) if over else clock
        message = "The ranks call faster than this view can follow, so some calls are missing here."
        remarks = [message] if self.tail.passed_over else []
        cut_ranks = (rank for rank in self.tail.trace.ranks.values() if rank.cut)
        remarks += [f"Rank {rank.rank}: recording ended early: {rank.cut}" for rank in cut_ranks]
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
        """Return what a rank does: ended, halted, held at a call, blocked in one, or outside of calls."""
        life, trace, held = self._life(rank), self.tail.trace.ranks.get(rank), self.tail.held.get(rank)
        shown = [*(trace.calls[-_RECENT:] if trace is not None else ()), *([held] if held is not None else ())]
        state, activity = "outside", "running"
        inside: Call | Phase | None = None
        since: float | None = None
        waits_for: tuple[int, ...] = ()
        call = _find_blocking_call(trace, step_of)
        if life.ended is not None:
            state, activity = "ended", end_text(life.ended)
        elif over or life.started is None:
            state, activity = "starting", "its end is unknown" if over else "starting"
        elif life.halted:
            state, activity = "halted", f"stopped by {life.halted}"
        elif held is not None:
            state, activity, inside = "held", f"held before {_render_call(held, step_of)}", held
        elif call is not None:
            state, activity, inside = "inside", f"in {_render_call(call, step_of)}", call
            waits_for = step_of[id(call)].lacks(call) if id(call) in step_of else ()
        elif trace is not None and trace.recorder and not trace.cut:  # otherwise it is only known to be running
            inside = next((phase for phase in reversed(trace.phases) if phase.end is None), None)
            activity = "in no call" if inside is None else f"in {inside.name}"
            since = max((call.end for call in shown if call.end is not None), default=trace.first)
        since, origin = since if inside is None else inside.begin, self.tail.trace.origin
        now = RankNow(
            rank=rank,
            node=node,
            state=state,
            activity=clip_end(activity, _LONGEST),
            location="" if inside is None else clip_end(inside.source, _LONGEST),
            since_s=None if since is None else max(0.0, clock - origin - since),
            waits_for=waits_for,
            bad=life.ended is not None and has_failed(life.ended),
            recent=tuple(
                CallNow(
                    text=_render_call(one, step_of),
                    op=clip_end(one.op, _LONGEST),
                    location=clip_end(one.source, _LONGEST),
                    state="held" if one is held else "inside" if one.state == "unfinished" else one.state,
                    took="" if one.end is None else format_duration(max(0.0, one.end - one.begin)),
                )
                for one in shown[-_RECENT:]
            ),
        )
        if call is not None and waits_for and (now.since_s or 0.0) > _WAIT_S and life.reported_wait != call.index:
            life.reported_wait = call.index
            text = f"waits for {name_ranks(waits_for)} {now.activity}{f' at {now.location}' if now.location else ''}"
            self._report(clock, "waits", rank, text, **{"for": list(waits_for)})
        return now

    def _life(self, rank: int) -> Life:
        return self._lives.setdefault(rank, Life())

    def _since(self, time: float) -> float:
        """Convert a Unix time to seconds since the run began."""
        return max(0.0, time - (self.began or time))


def _describe_news(news: News, step_of: Mapping[int, Step]) -> tuple[str, str, dict[str, Any]]:
    """Describe an event of a trace: its kind, a sentence, and facts."""
    call, words, location = news.call, _render_call(news.call, step_of), clip_end(news.call.source, _LONGEST)
    where = f"{words} at {location}" if location else words
    facts = {"op": clip_end(call.op, _LONGEST), "place": location, "call": call.index}
    if news.kind != "end":
        return news.kind, f"{'enters' if news.kind == 'begin' else 'is held before'} {where}", facts
    text = f"fails in {words}: {call.error}" if call.error else f"leaves {words}"
    return "end", text, {**facts, "took_s": round((call.end or call.begin) - call.begin, 9), "error": call.error}


def _render_call(call: Call, step_of: Mapping[int, Step]) -> str:
    """Render a call, also if its step is unknown."""
    if step := step_of.get(id(call)):
        return clip_end(describe_call(call_facts(call, step)), _LONGEST)
    return clip_end(call.op if call.seq is None else f"{call.op} #{call.seq}", _LONGEST)


def _find_blocking_call(trace: RankTrace | None, step_of: Mapping[int, Step]) -> Call | None:
    """Return the call that blocks a rank: one without a handle, or one whose handle the script waits for."""
    if trace is None:
        return None
    unfinished = [call for call in trace.calls if call.state == "unfinished"]
    if blocking := [call for call in unfinished if not call.has_handle]:
        return blocking[-1]
    if not unfinished or all(wait.end is not None for wait in trace.waits):
        return None
    return next((call for call in unfinished if (step := step_of.get(id(call))) and step.missing), unfinished[0])


_BEHIND_BYTES = 256 << 10
"""If a rank writes more between two polls, only the end of its trace shows where it is."""


class Whereabouts:
    """What the ranks of a run do now, in one line."""

    def __init__(self, record: Record) -> None:
        self._follower = Follower(record, behind_bytes=_BEHIND_BYTES)

    def line(self, elapsed_s: float, columns: int, runs: Callable[[int], bool]) -> str:
        """Render what running ranks do, after the elapsed time; empty if no call of theirs is recorded."""
        now, _ = self._follower.poll(time.time())
        return whereabouts_text(elapsed_s, [rank for rank in now.ranks if runs(rank.rank)], columns)


def whereabouts_text(elapsed_s: float, ranks: Sequence[RankNow], columns: int) -> str:
    """Render `… 12 s  rank 0: in all_reduce #3 train.py:41 (8 s) · rank 1: in no call since train.py:39 (3 s)`.

    Args:
        elapsed_s: The time since the run began.
        ranks: In order.
        columns: The line is cut at this width.
    """
    items = []
    for words, group in group_pairs((_position_of(one), one) for one in ranks if one.since_s is not None).items():
        took = max(one.since_s or 0.0 for one in group)
        waited = f" ({format_duration(round(took))})" if took >= _WAIT_S else ""
        items.append(f"{name_ranks(one.rank for one in group)}: {sanitize_text(words)}{waited}")
    return fit_columns(f"… {format_duration(round(elapsed_s))}  {' · '.join(items)}", columns) if items else ""


def _position_of(rank: RankNow) -> str:
    """Return `in all_reduce #3 train.py:41`, `in no call since train.py:39`."""
    if rank.location or not rank.recent:
        return f"{rank.activity} {rank.location}".rstrip()
    return f"{rank.activity} since {rank.recent[-1].location}"


LOOPBACK = "127.0.0.1"
LONGEST_HOLD_S = 3600.0
"""If ranks are held for longer without a key press, the time limit runs again, because no one watches."""


_PATIENCE_S = 3.0
"""Seconds that a key press waits for ranks that are on their way."""


class Watched(Companion):
    """A companion of a run that releases its held ranks on key presses, in a terminal or on a page.

    Key presses and requests of the run may come from any thread.

    Args:
        step: Whether to hold every rank before each recorded call until a key press releases it.
    """

    def __init__(self, *, step: bool = False) -> None:
        self.step = step
        self.path: Path | None = None
        """The record; it changes if the lab restarts the run because its cluster was broken."""
        self._lock = threading.Lock()
        self._pressed: float | None = None
        self._running_on = False
        self._released: dict[int, int] = {}
        """The last call that was released, by rank."""
        self._asked: dict[int, int] = {}
        self._held_since: float | None = None
        self._held_s = 0.0
        self._bell, self._button = socket.socketpair()
        for end in (self._bell, self._button):
            end.setblocking(False)

    # -- for viewers

    def press(self) -> None:
        """Release the next step, now or as soon as its ranks have reached it."""
        with self._lock:
            self._pressed = time.monotonic()

    def run_on(self) -> None:
        """Hold no rank from now on."""
        self._running_on = True
        self.set_held(held=False)
        self.release({messages.EVERY_RANK: messages.RUN_ON})

    def restart(self) -> None:
        """Forget released calls, because the workers were restarted."""
        self._released = {}
        if self._running_on:
            self.run_on()

    def update(self, now: Now, follower: Follower) -> Now:
        """Release the requested calls, as far as possible, and add the next step to the view."""
        ranks = {} if self._running_on or now.over else follower.tail.held
        self.set_held(held=bool(ranks))
        if self._running_on:
            return replace(now, stepping=False)
        held = {rank: call for rank, call in follower.tail.held.items() if call.index > self._released.get(rank, 0)}
        steps, calls = find_complete_steps(follower.ahead, held)
        words, is_quiet = join_words(step.title for step in steps), _is_quiet(now, held)
        if held and not calls:
            calls = list(held.values())
            when = "though no step has all its ranks" if is_quiet else "once the others have reached it"
            words = f"{name_ranks(held)}, {when}"
        if (pressed := self._pressed) is not None:
            is_late = time.monotonic() - pressed > _PATIENCE_S
            is_released = calls and (steps or is_quiet or is_late)
            if is_released:
                indices = {call.rank: call.index for call in calls}
                self._released |= indices
                self.release(indices)
                words = ""
            with self._lock:
                if (is_released or is_late) and self._pressed == pressed:  # otherwise it was pressed again
                    self._pressed = None
        return replace(now, next=words, next_steps=tuple(step.title for step in steps))

    def release(self, calls: Mapping[int, int]) -> None:
        """Release held ranks, each at the call of this index."""
        with self._lock:
            self._asked.update(calls)
            self._count_held(held=self._held_since is not None)
            with suppress(OSError):  # the buffer is full, or the run is over
                self._button.send(b".")

    def set_held(self, *, held: bool) -> None:
        """Store whether a rank is held now."""
        with self._lock:
            if held != (self._held_since is not None):
                self._count_held(held=held)

    def _count_held(self, *, held: bool) -> None:
        self._held_s += self._holding_s()
        self._held_since = time.monotonic() if held else None

    # -- for the run

    @property
    def held_s(self) -> float:
        """Seconds that ranks have been held in total; the time limit of the run grows by as much."""
        with self._lock:
            return self._held_s + self._holding_s()

    def _holding_s(self) -> float:
        return 0.0 if self._held_since is None else min(LONGEST_HOLD_S, time.monotonic() - self._held_since)

    def fileno(self) -> int:
        """Return a descriptor that is readable when calls were released."""
        return self._bell.fileno()

    def describe(self, record: Path) -> Mapping[str, Any]:
        """Store the path of the record; the returned entry of the plan says whether the run is stepped."""
        self.path = record
        return {"stepped": True} if self.step else {}

    def claim(self, agents: AgentChannels, node: str) -> None:
        """Tell the agent of a node to send traces soon, and to hold ranks if the run is stepped."""
        agents.send(node, messages.Follow(agents.run, self.step))

    def follow_run(self, agents: AgentChannels, record: Callable[[Event], object], done: Callable[[], object]) -> None:
        """Pass released calls on to the agents of the run, as long as it listens to them."""
        agents.add_reader(self.fileno(), lambda: self._pass_on(agents))

    def _pass_on(self, agents: AgentChannels) -> None:
        for rank, call in self.collect_released().items():
            agents.send_all(messages.Release(agents.run, rank, "step", str(call)))

    def collect_released(self) -> dict[int, int]:
        """Return the calls that were released since the last time, by rank."""
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        with self._lock:
            released, self._asked = self._asked, {}
        return released


def find_complete_steps(ahead: Sequence[Step], held: Mapping[int, Call]) -> tuple[list[Step], list[Call]]:
    """Return the steps that all their ranks have reached, and those of their calls that are held."""
    complete, calls = [], []
    for step in ahead:
        held_calls = [call for rank, call in step.calls.items() if held.get(rank) is call]
        if held_calls and not (step.missing or (step.message and step.source is None)):
            complete.append(step)
            calls += held_calls
    return complete, calls


def _is_quiet(now: Now, held: Collection[int]) -> bool:
    """Return whether no rank can reach a call before one is released; a rank that was just released is on its way."""
    others = (rank for rank in now.ranks if rank.rank not in held)
    return all(rank.state in ("ended", "halted") or (rank.state == "inside" and rank.waits_for) for rank in others)
