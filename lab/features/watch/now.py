"""A run as it goes on, by its record: what every rank does now, and what has happened since the last look."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from lab.diagnosis.ends import call_facts
from lab.diagnosis.wording import describe_call
from lab.features.html.contents import clean_line
from lab.features.html.timelines import end_text, ended_badly, note_text
from lab.features.watch.tail import News, TraceTail
from lab.node.messages.agent import STARTER, Exited, Halted, Note, Stack, Started
from lab.record.events import Cancelled, Event, NodeLost, NodeTroubled, Restarted, TimedOut
from lab.record.read import IndexReader, Piece, Record, read_output
from lab.record.result import Result
from lab.trace.model import Call, Mark, RankTrace
from lab.trace.steps import Step
from lab.words import clip, name_ranks

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
    ended: Exited | None = None
    reported_wait: int = 0
    """Index of the latest call of which it was reported that the rank waits in it."""
    beginning: dict[int, bytes] = field(default_factory=dict)
    """By stream: the beginning of a line that it prints."""


def alike_ranks(ranks: Sequence[RankNow]) -> list[list[RankNow]]:
    """Ranks that do the same at the same place together; those of which there are the fewest first."""
    groups: dict[object, list[RankNow]] = {}
    for rank in ranks:
        others = tuple(other for other in rank.waits_for if other != rank.rank)
        groups.setdefault((rank.told, rank.state, rank.place, rank.bad, others), []).append(rank)
    return sorted(groups.values(), key=len)


@dataclass(frozen=True, kw_only=True)
class CallNow:
    """A call of a rank."""

    text: str
    """`all_reduce #3`, `recv from rank 1`."""
    op: str
    place: str
    """The line of the script, `file:line`; empty where it is not known."""
    state: str
    """`held`, `inside`, `completed`, `failed`."""
    began_s: float
    """Seconds since the run began."""
    took_s: float | None = None
    """None where it is not over."""


@dataclass(frozen=True, kw_only=True)
class RankNow:
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
    calls: int = 0
    """How many it has made."""
    recent: tuple[CallNow, ...] = ()
    """The last of them, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line that a rank printed, or that the watcher has to say."""

    number: int
    """From 1, in the order of arrival."""
    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error."""
    time_s: float
    """Seconds since the run began."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Now:
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

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


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
        self._index = IndexReader()
        self._lives: dict[int, Life] = {}
        self._plan = record.plan()
        self._met: dict[int, str] = {}
        """By rank: its node, where a launcher decides that."""

    def go_on(self) -> Follower:
        """The workers were begun anew: take what else was said before, and return who follows the next attempt."""
        self.happened = []
        self._read(self.record.attempt(self.attempt))
        self._end_lines()
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
            self._happen(news.time + self.tail.trace.origin, *_describe(news, step_of))
        if over and not more and self._result is None and self.record.complete:
            self._result = self.record.result()
        now = self._now(clock, step_of, over=over and not more)
        self.happened.sort(key=lambda happening: happening.time_s)
        return now, more

    # -- what is new

    def _read(self, record: Record) -> bool:
        """Take what has come of events and output; returns whether that was anything."""
        events, self._event_position = record.events_from(self._event_position, _LOOK_BYTES)
        for event in events:
            self._handle(event)
        pieces = [*read_output(record.path, self._index, _LOOK_BYTES)]
        for piece in pieces:
            self._print(piece)
        return bool(events or pieces)

    def _handle(self, event: Event) -> None:
        if getattr(event, "rank", None) == STARTER:
            return
        if isinstance(event, (TimedOut, Cancelled, Stack)):
            self.tail.stopped = min(self.tail.stopped, event.time)
        match event:
            case Started():
                self._life(event.rank).started = event.time
                if event.attempt:
                    self._met[event.rank] = event.node
                self.began = min(event.time, self.began or event.time)
                self._happen(event.time, "started", event.rank, f"started on {event.node}")
            case Halted():
                self._life(event.rank).halted = event.signal
                text = f"was stopped by {event.signal}" if event.signal else "goes on"
                self._happen(event.time, "halted", event.rank, text)
            case Exited():
                self._life(event.rank).ended = event
                facts = {"code": event.code, "signal": event.signal}
                self._happen(event.time, "exited", event.rank, end_text(event), facts)
            case Note():
                facts = {"name": event.name, "value": event.value}
                self._happen(event.time, "note", event.rank, note_text(event), facts)
            case NodeLost() | NodeTroubled():
                self._happen(event.time, "node", None, f"{event.node} {event.how or 'works again'}")
            case Restarted():
                self._happen(event.time, "attempt", None, f"attempt {self.attempt + 1} begins")
            case TimedOut():
                self._happen(event.time, "timed out", None, "the time limit passed")

    def _print(self, piece: Piece) -> None:
        held = self._life(piece.rank).beginning
        *whole, rest = (held.pop(piece.stream, b"") + piece.data).split(b"\n")
        if len(rest) > _LONGEST_HELD_BYTES:
            whole.append(rest)
        elif rest:
            held[piece.stream] = rest
        for line in whole:
            self._line(piece.rank, piece.stream, piece.time, line)

    def finish(self) -> None:
        """Take what was printed without a newline at its end; nothing more comes."""
        self.happened = []
        self._end_lines()

    def _end_lines(self) -> None:
        for rank, life in self._lives.items():
            for stream, rest in sorted(life.beginning.items()):
                self._line(rank, stream, life.ended.time if life.ended else self.began or 0.0, rest)
            life.beginning = {}

    def _line(self, rank: int, stream: int, time: float, data: bytes) -> None:
        self._printed += 1
        text = clean_line(data)
        self.lines.append(Line(number=self._printed, rank=rank, stream=stream, time_s=self._since(time), text=text))
        self._happen(time, "output", rank, text, {"stream": stream})

    def _happen(
        self, time: float, what: str, rank: int | None, text: str, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.happened.append(Happening(self._since(time), what, rank, text, facts or {}))

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
            told=clip(words, _LONGEST),
            place="" if inside is None else clip(inside.source, _LONGEST),
            since_s=None if since is None else max(0.0, clock - origin - since),
            waits_for=waits_for,
            bad=life.ended is not None and ended_badly(life.ended),
            calls=self.tail.counts.get(rank, 0),
            recent=tuple(
                CallNow(
                    text=_call_words(one, step_of),
                    op=clip(one.op, _LONGEST),
                    place=clip(one.source, _LONGEST),
                    state="held" if one is held else "inside" if one.state == "unfinished" else one.state,
                    began_s=max(0.0, one.begin + origin - (self.began or clock)),
                    took_s=None if one.end is None else max(0.0, one.end - one.begin),
                )
                for one in shown[-_RECENT:]
            ),
        )
        if call is not None and waits_for and (now.since_s or 0.0) > _WAIT_S and life.reported_wait != call.index:
            life.reported_wait = call.index
            text = f"waits for {name_ranks(waits_for)} {now.told}{f' at {now.place}' if now.place else ''}"
            self._happen(clock, "waits", rank, text, {"for": list(waits_for)})
        return now

    def _life(self, rank: int) -> Life:
        return self._lives.setdefault(rank, Life())

    def _since(self, time: float) -> float:
        """Seconds since the run began, of a Unix time."""
        return max(0.0, time - (self.began or time))


def _describe(news: News, step_of: Mapping[int, Step]) -> tuple[str, int, str, dict[str, Any]]:
    """What a trace reports, as something that happened: what, to which rank, in words, and as facts."""
    call, words = news.call, _call_words(news.call, step_of)
    place = clip(call.source, _LONGEST_NOTE)
    where = f" at {place}" if place else ""
    facts = {"op": clip(call.op, _LONGEST_NOTE), "place": place, "call": call.index}
    if news.kind == "begin":
        return "begin", call.rank, f"enters {words}{where}", facts
    if news.kind == "hold":
        return "held", call.rank, f"is held before {words}{where}", facts
    took = (call.end or call.begin) - call.begin
    ended = f"fails in {words}: {call.error}" if call.error else f"leaves {words}"
    return "end", call.rank, ended, {**facts, "took_s": round(took, 9), "error": call.error}


def _call_words(call: Call, step_of: Mapping[int, Step]) -> str:
    """A call in words, also where its step is not known."""
    if step := step_of.get(id(call)):
        return clip(describe_call(call_facts(call, step)), _LONGEST)
    return clip(call.op if call.seq is None else f"{call.op} #{call.seq}", _LONGEST)


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
