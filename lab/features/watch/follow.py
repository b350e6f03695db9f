"""Follows a run that goes on, by its record: at each look, what every rank does now and what has happened since."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from lab.features.html.logs import clean_line
from lab.features.html.timelines import end_text
from lab.features.watch.now import Life, Line, Moment, Now, RankNow, blocking, call_words, rank_now
from lab.features.watch.tail import News, TraceTail
from lab.node.messages.agent import STARTER, Exited, Halted, Note, Stack, Started
from lab.record.events import Cancelled, Event, NodeLost, NodeTroubled, Restarted, TimedOut
from lab.record.output import IndexReader, Piece, read_output
from lab.record.read import Record
from lab.record.result import Result
from lab.trace.steps import Step
from lab.words import clip, format_value, name_ranks

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
        before = self.record.attempt(self.attempt)
        self.happened = []
        for event in before.events_from(self._event_position, _LOOK_BYTES)[0]:
            self._take(event)
        for piece in read_output(before.path, self._index, _LOOK_BYTES):
            self._print(piece)
        last_words = self.happened
        self.finish()
        self.happened = [*last_words, *self.happened]
        following = Follower(self.record, stepping=self.stepping)
        following.began, following.lines, following._printed = self.began, self.lines, self._printed
        return following

    def look(self, clock: float) -> tuple[Now, bool]:
        """What the run does at this Unix time, and whether more is waiting to be read."""
        self.happened = []
        over = not self.record.in_progress  # asked first: what is written until then is read below
        if not self._plan.workers:
            self._plan = self.record.plan()
        events, self._event_position = self.record.events_from(self._event_position, _LOOK_BYTES)
        for event in events:
            self._take(event)
        pieces = [*read_output(self.record.path, self._index, _LOOK_BYTES)]
        for piece in pieces:
            self._print(piece)
        more = self.tail.look() or bool(events or pieces)
        self.steps, self.ahead = self.tail.steps(), self.tail.steps_ahead()
        step_of = {id(call): step for step in (*self.ahead, *self.steps) for call in step.calls.values()}
        for news in self.tail.news:
            words = call_words(news.call, step_of)
            self._happen(self._since(news.time + self.tail.trace.origin), *_told(news, words))
        if over and not more and self._result is None and self.record.complete:
            self._result = self.record.result()
        now = self._now(clock, step_of, over=over and not more)
        self.happened.sort(key=lambda happening: happening.time_s)
        return now, more

    # -- what is new

    def _take(self, event: Event) -> None:
        if getattr(event, "rank", None) == STARTER:
            return
        if isinstance(event, (TimedOut, Cancelled, Stack)):
            self.tail.stopped = min(self.tail.stopped, event.time)
        life = self._life(event.rank) if isinstance(event, (Started, Halted, Exited)) else None
        if isinstance(event, Started) and life is not None:
            life.started = event.time
            if event.attempt:
                self._met[event.rank] = event.node
            self.began = min(event.time, self.began or event.time)
            self._happen(self._since(event.time), "started", event.rank, f"started on {event.node}")
        elif isinstance(event, Halted) and life is not None:
            life.halted = event.signal
            told = f"was stopped by {event.signal}" if event.signal else "goes on"
            self._happen(self._since(event.time), "halted", event.rank, told)
        elif isinstance(event, Exited) and life is not None:
            life.ended = event
            facts = {"code": event.code, "signal": event.signal}
            self._happen(self._since(event.time), "exited", event.rank, end_text(event), facts)
        elif isinstance(event, Note):
            text = f"{event.name} = {format_value(event.value, _LONGEST_NOTE)}"
            facts = {"name": event.name, "value": event.value}
            self._happen(self._since(event.time), "note", event.rank, text, facts)
        elif isinstance(event, (NodeLost, NodeTroubled)):
            self._happen(self._since(event.time), "node", None, f"{event.node} {event.how or 'works again'}")
        elif isinstance(event, Restarted):
            self._happen(self._since(event.time), "attempt", None, f"attempt {self.attempt + 1} begins")
        elif isinstance(event, TimedOut):
            self._happen(self._since(event.time), "timed out", None, "the time limit passed")

    def _print(self, piece: Piece) -> None:
        held = self._life(piece.rank).beginning
        text = held.pop(piece.stream, b"") + piece.data
        *whole, rest = text.split(b"\n")
        if len(rest) > _LONGEST_HELD_BYTES:
            whole, rest = [*whole, rest], b""
        if rest:
            held[piece.stream] = rest
        for line in whole:
            self._line(piece.rank, piece.stream, piece.time, line)

    def finish(self) -> None:
        """Take what was printed without a newline at its end; nothing more comes."""
        self.happened = []
        for rank, life in self._lives.items():
            for stream, rest in sorted(life.beginning.items()):
                self._line(rank, stream, life.ended.time if life.ended else self.began or 0.0, rest)
            life.beginning = {}

    def _line(self, rank: int, stream: int, time: float, data: bytes) -> None:
        self._printed += 1
        line = Line(number=self._printed, rank=rank, stream=stream, time_s=self._since(time), text=clean_line(data))
        self.lines.append(line)
        self._happen(line.time_s, "output", rank, line.text, {"stream": stream})

    def _happen(
        self, time_s: float, what: str, rank: int | None, text: str, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.happened.append(Happening(time_s, what, rank, text, facts or {}))

    # -- what is now

    def _now(self, clock: float, step_of: Mapping[int, Step], *, over: bool) -> Now:
        result, moment = (
            self._result,
            Moment(clock=clock, origin=self.tail.trace.origin, began=self.began or clock, step_of=step_of, over=over),
        )
        workers = sorted(self._met.items() or ((worker.rank, worker.node) for worker in self._plan.workers))
        ends = [life.ended.time for life in self._lives.values() if life.ended is not None]
        until = max(ends, default=clock) if over else clock
        remarks = []
        if self.tail.passed_over:
            remarks.append("The ranks call faster than this view can follow: calls were passed over.")
        cut = [rank for rank in self.tail.trace.ranks.values() if rank.cut]
        remarks += [f"Rank {rank.rank}: recording ended early: {rank.cut}" for rank in cut]
        if over and result is None:
            remarks.append(self.record.result().reason)
        return Now(
            run=self.record.run,
            scenario=self._plan.scenario or self.record.run,
            engine=self._plan.engine,
            ranks=tuple(self._rank(rank, node, moment) for rank, node in workers),
            elapsed_s=None if self.began is None else max(0.0, until - self.began),
            over=over,
            verdict=result.verdict if result else "",
            reason=result.reason if result else "",
            remarks=tuple(remarks),
            stepping=self.stepping,
        )

    def _rank(self, rank: int, node: str, moment: Moment) -> RankNow:
        life, trace, tail = self._life(rank), self.tail.trace.ranks.get(rank), self.tail
        now = rank_now(rank, node, life, trace, tail.held.get(rank), tail.counts.get(rank, 0), moment)
        call = blocking(trace, moment.step_of) if now.waits_for and (now.since_s or 0.0) > _WAIT_S else None
        if call is not None and life.told_wait != call.index:
            life.told_wait = call.index
            text = f"waits for {name_ranks(now.waits_for)} {now.told}{f' at {now.place}' if now.place else ''}"
            self._happen(self._since(moment.clock), "waits", rank, text, {"for": list(now.waits_for)})
        return now

    def _life(self, rank: int) -> Life:
        return self._lives.setdefault(rank, Life())

    def _since(self, time: float) -> float:
        """Seconds since the run began, of a Unix time."""
        return max(0.0, time - (self.began or time))


def _told(news: News, words: str) -> tuple[str, int, str, dict[str, Any]]:
    """What a trace told, as something that happened: what, to which rank, in words, and as facts."""
    call = news.call
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
