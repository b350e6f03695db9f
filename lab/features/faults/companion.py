"""The faults of one run: each is done when its event comes, beside the run, and taken back at its end at the latest."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.diagnosis.expectations import Searches, TooLong, equal
from lab.errors import LabError
from lab.features.faults.detection import check_detected, facts_of, find_detections, with_detections
from lab.features.faults.fault import START, Fault, When, detected_within, fault_data, fault_sentence
from lab.features.faults.injection import Breaker
from lab.features.faults.target import AgentLine, ClusterTarget
from lab.node.messages.agent import Done, Output, Reached, Release, Started
from lab.record import events
from lab.record.result import Expectation
from lab.run.companion import Companion
from lab.words import format_duration, format_value

if TYPE_CHECKING:
    from lab.engine.protocol import Engine
    from lab.features.faults.planning import FaultsPart
    from lab.plan.cluster import ClusterInfo
    from lab.plan.plan import Plan
    from lab.record.read import Record
    from lab.run.conversation import Conversation
    from lab.spec.scenario import Expect


_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_LONGEST_LINE = 64 * 1024
_LONGEST_SHOWN = 100
_LONGEST_NOTE = 60


def triggers(faults: Sequence[Fault]) -> tuple[dict[str, Any], ...]:
    """The points at which ranks are held, as `Prepare` has them; and whether their writes have to be seen."""
    seen = ({"trigger": -1, "sidecar": "faults.write_filter"},) if any(fault.what.of_writes for fault in faults) else ()
    return seen + tuple(
        {"trigger": index, "heals": heals, **_point(event)}
        for index, fault in enumerate(faults)
        for event, heals in ((fault.when, False), (fault.until, True))
        if event is not None and event.exact
    )


def _point(event: When) -> dict[str, Any]:
    rank = {} if event.rank is None else {"rank": event.rank}
    if event.note is not None:
        return {**rank, "note": event.note}
    what = {"op": event.op} if event.op is not None else {"phase": event.phase}
    return {**rank, **what, "count": event.count, "edge": event.edge}


def reached_why(event: When, reached: Reached) -> str:
    """What happened, where a rank that is held has come to that event: `rank 0 noted step = 3`; empty where not."""
    who = f"rank {reached.rank}"
    if event.rank not in (None, reached.rank):
        return ""
    if event.note is not None:
        fits = event.equals is None or equal(event.equals, reached.value, _RELATIVE, _ABSOLUTE)
        return f"{who} noted {event.note} = {format_value(reached.value, _LONGEST_NOTE)}" if fits else ""
    what = event.op or event.phase
    verb = "had done" if event.edge == "after" else "came to"
    return f"{who} {verb} {what} {event.count}" if what else ""


def printed_why(event: When, rank: int, lines: str) -> str:
    """What happened, where a rank has printed what that event waits for; empty where it has not.

    Raises:
        TooLong: searching takes too long.
        OSError: the search could not be made.
    """
    if event.log is None or event.rank not in (None, rank):
        return ""
    found = Searches().find(lines, event.log, re.MULTILINE)
    return "" if found is None else f"rank {rank} printed {format_value(found, _LONGEST_SHOWN)}"


WAITING, APPLYING, IN_FORCE, HEALING, HEALED, FAILED = "waiting", "applying", "in force", "healing", "healed", "failed"


@dataclass
class Armed:
    """A fault of a run."""

    index: int
    """Its place in the plan."""
    fault: Fault
    state: str = WAITING
    journal: str = ""
    """What the journal calls it."""
    begun: float | None = None
    """Unix time at which its event came; None: it has not."""
    at: float | None = None
    """Unix time since when it is in force."""
    healed: float | None = None
    """Unix time at which it was taken back."""
    why: str = ""
    """What set it off."""
    rank: int | None = None
    """Whose event that was."""
    reached: Reached | None = None
    """The same, where that rank was held for it."""
    found: Mapping[str, Any] = field(default_factory=dict)
    """What was read back."""
    wrong: str = ""
    """Why it could not be done, or not waited for."""

    @property
    def when(self) -> str:
        """Its events, in words."""
        return fault_sentence(fault_data(self.fault)).removeprefix(f"{self.fault} ")

    @property
    def awaits(self) -> When | None:
        """The event that comes next, which sets it off or heals it; None: none does."""
        if self.state == WAITING:
            return self.fault.when
        return self.fault.until if self.state in (APPLYING, IN_FORCE) else None

    @property
    def node(self) -> str:
        """The node that it acts on, where that is one."""
        nodes = self.fault.what.nodes
        return nodes[0] if len(nodes) == 1 else ""

    @property
    def point(self) -> dict[str, Any]:
        """The call, or phase, at which a rank was held for it."""
        op = self.fault.when.op or self.fault.when.phase
        return {"op": op, "call": self.reached.call} if op and self.reached is not None else {}

    def event(self) -> events.Fault:
        """That it is in force."""
        event = events.Fault(self.at or time.time(), str(self.fault), self.rank, self.node, self.why)
        return event._replace(number=self.index, begun=self.begun, found=dict(self.found) or None, **self.point)

    def to_result(self, began: float | None) -> dict[str, Any]:
        """As results have it; `began`: Unix time at which the workers were let go."""
        set_off, begun = self.at or self.begun, began or 0.0
        return {
            "fault": str(self.fault),
            "node": self.node,
            "rank": self.rank,
            **self.point,
            "at_s": round(set_off - begun, 6) if self.why and set_off and begun else None,
            "healed_s": round(self.healed - begun, 6) if self.healed and begun else None,
            "why": self.why,
            "found": dict(self.found),
            "failed": self.wrong,
        }

    def expectation(self) -> Expectation:
        """As something that had to come."""
        return Expectation(
            what=f"fault {self.fault}",
            expected=self.when,
            got=f"({self.wrong})" if self.wrong else self.why or self.when,
            met=not self.wrong,
        )


_HEAL_S = 120.0
"""Everything is taken back long before."""
_SELDOM_S = 1.0
Recorder = Callable[[events.Event], object]
_Work = tuple[Future[None], Callable[[Future[None]], object]]


class Faults(Companion):
    """The faults of a run.

    Args:
        part: of the plan.
        plan: of the run.
        engine: of the cluster.
        cluster: as it was before the run.
        removed: whether the cluster is removed after the run: nodes are not started for that.
    """

    def __init__(
        self, part: FaultsPart, plan: Plan, engine: Engine, cluster: ClusterInfo, *, removed: bool = False
    ) -> None:
        self.triggers = triggers(part.faults)
        self._removed = removed
        self._target = ClusterTarget(engine, cluster)
        self._target.addresses = {node.name: node.address for node in cluster.nodes[: plan.nnodes]}
        self._target.ranks = {worker.rank: worker.node for worker in plan.workers}
        self._breaker = Breaker(self._target, plan.run)
        self._armed = [Armed(index, fault) for index, fault in enumerate(part.faults)]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="faults")
        """One after the other, beside the run: starting a node takes seconds."""
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._running: list[_Work] = []
        """What the thread has to do, and what follows once it is done."""
        self._timers: list[tuple[float, Callable[[], object]]] = []
        """Monotonic times, and what is due then."""
        self._held: list[Reached] = []
        self._held_since = 0.0
        """Monotonic time since when any rank is held."""
        self._held_before_s = 0.0
        self._unfinished: dict[tuple[int, int], bytes] = {}
        """What each rank has printed of a line that goes on, by rank and stream."""
        self._agents: Conversation | None = None
        self._line: AgentLine | None = None
        self._resting = False
        """Whether nothing sets anything off any more."""
        self._record: Recorder = lambda _: None
        self._done: Callable[[], object] = lambda: None
        self._began: float | None = None
        """Unix time at which the workers were let go."""

    # -- before and while it runs

    def begin(self) -> None:
        """Do those that come before the run.

        Raises:
            LabError: one cannot be done.
        """
        for one in self._armed:
            one.fault.what.check(self._target)
        for one in self._armed:
            if one.fault.when == START:
                one.state, one.begun = APPLYING, time.time()
                self._apply(one)
                one.state = IN_FORCE

    def attend(self, agents: Conversation, record: Recorder, done: Callable[[], object]) -> None:
        """Take part in a conversation, as the workers are let go; `done` is called when something is in force."""
        self._agents, self._record, self._done, self._began = agents, record, done, time.time()
        self._line = self._target.line = AgentLine(agents, self._wake)
        look_often = agents.look_often
        agents.look_often = lambda: min(look_often(), self._fire())
        agents.hear(self._wake_r, self._proceed)
        for one in self._armed:
            if one.state == IN_FORCE:
                self._report_in_force(one)
            for event, heals in ((one.fault.when, False), (one.fault.until, True)):
                if event is not None and event.at_s is not None:
                    why = f"{format_duration(event.at_s)} had passed"
                    self._timers.append((time.monotonic() + event.at_s, partial(self._come, one, why, heals=heals)))

    def hear(self, message: Any) -> None:
        """See whether what an agent says of its ranks sets something off."""
        if isinstance(message, Done) and self._line is not None:
            self._line.receive(message)
        elif isinstance(message, Reached):
            self._hear_reached(message)
        elif isinstance(message, Started):
            self._target.ranks = {**self._target.ranks, message.rank: message.node}
        elif isinstance(message, Output) and message.rank >= 0:
            self._hear_lines(message)

    def _hear_reached(self, reached: Reached) -> None:
        """A rank is held: it is let go once what it waits for is done, or at once where it waits for nothing."""
        one = self._armed[reached.trigger] if 0 <= reached.trigger < len(self._armed) else None
        event = None if one is None else one.fault.until if reached.heals else one.fault.when
        why = reached_why(event, reached) if event is not None else ""
        if not self._held:
            self._held_since = time.monotonic()
        self._held.append(reached)
        if one is None or not why or not self._come(one, why, reached.rank, heals=reached.heals, reached=reached):
            self._release(reached)

    def _hear_lines(self, output: Output) -> None:
        waiting = [(one, event) for one in self._armed if (event := one.awaits) is not None and event.log is not None]
        if not waiting:
            return
        key = (output.rank, output.stream)
        whole, newline, rest = (self._unfinished.get(key, b"") + output.data).rpartition(b"\n")
        self._unfinished[key] = rest[-_LONGEST_LINE:]
        for one, event in waiting if newline else ():
            try:
                why = printed_why(event, output.rank, (whole + newline).decode("utf-8", "replace"))
            except (TooLong, OSError) as error:
                one.state, one.wrong = FAILED, str(error)
                continue
            if why:
                self._come(one, why, output.rank, heals=one.state != WAITING)

    def _come(
        self, one: Armed, why: str, rank: int | None = None, *, heals: bool = False, reached: Reached | None = None
    ) -> bool:
        """An event has come; returns whether it does anything."""
        if self._resting or one.state not in ((APPLYING, IN_FORCE) if heals else (WAITING,)):
            return False
        if heals:
            return self._heal(one, why, reached)
        one.state, one.begun, one.why, one.rank, one.reached = APPLYING, time.time(), why, rank, reached
        unfit = one.fault.what.unfit(reached.brought) if reached is not None else ""
        if unfit:
            self._fail(one, unfit)
            return False
        if one.fault.what.by_worker:
            one.at = time.time()
            self._report_in_force(one)
            if reached is not None:
                self._release(reached, one.fault.deed)
        else:
            self._submit(partial(self._apply, one), partial(self._applied, one, reached))
        return True

    def _fail(self, one: Armed, why: str) -> None:
        one.state, one.wrong = FAILED, why
        self._record(events.FaultFailed(time.time(), str(one.fault), one.node, why))

    def _heal(self, one: Armed, why: str, reached: Reached | None = None) -> bool:
        if one.fault.what.by_worker:
            return False
        one.state = HEALING
        self._submit(partial(self._undo, one), partial(self._undone, one, why, reached))
        return True

    @property
    def pending(self) -> bool:
        """Whether something is being done now."""
        return bool(self._running)

    # -- in the thread of faults

    def _apply(self, one: Armed) -> None:
        until = time.time() + one.fault.for_s if one.fault.for_s is not None else None
        one.journal, found = self._breaker.apply(one.fault.what, until)
        one.at, one.found = time.time(), found.found

    def _undo(self, one: Armed) -> None:
        if one.journal:
            with suppress(LabError):  # it is undone all the same
                one.found = {**one.found, **one.fault.what.met(self._target)}
            self._breaker.undo(one.journal, one.fault.what)
            one.healed = time.time()

    # -- in the thread of the run

    def _submit(self, work: Callable[[], None], after: Callable[[Future[None]], object]) -> None:
        future = self._thread.submit(work)
        self._running.append((future, after))
        future.add_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        with suppress(BlockingIOError):  # it is awake
            os.write(self._wake_w, b".")

    def _proceed(self) -> None:
        """Go on with what the thread has done, and send what it asks agents for."""
        with suppress(BlockingIOError):
            os.read(self._wake_r, 4096)
        if self._line is not None:
            self._line.pass_on()
        for pair in [pair for pair in self._running if pair[0].done()]:
            self._running.remove(pair)
            pair[1](pair[0])

    def _applied(self, one: Armed, reached: Reached | None, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._fail(one, str(getattr(error, "message", error)))
        else:
            self._report_in_force(one)
            self._done()
        if reached is not None:
            self._release(reached)

    def _undone(self, one: Armed, why: str, reached: Reached | None, future: Future[None]) -> None:
        error = future.exception()
        if error is None and one.healed is not None:  # else it is in the journal
            one.state = HEALED
            self._record(events.FaultHealed(one.healed, str(one.fault), one.index, why))
            self._done()
        if reached is not None:
            self._release(reached)

    def _report_in_force(self, one: Armed) -> None:
        one.state = IN_FORCE if one.state == APPLYING else one.state
        self._record(one.event())
        for_s = one.fault.for_s
        if for_s is not None:
            due = partial(self._come, one, f"{format_duration(for_s)} had passed", heals=True)
            self._timers.append((time.monotonic() + for_s, due))

    def _fire(self) -> float:
        """Do what is due; returns for how many seconds nothing will be."""
        if self._line is not None:
            self._line.pass_on()  # a node that was lost answers nothing
        now = time.monotonic()
        for timer in [timer for timer in self._timers if timer[0] <= now]:
            self._timers.remove(timer)
            timer[1]()
        return min((due - now for due, _ in self._timers), default=_SELDOM_S)

    # -- ranks that are held

    @property
    def held_s(self) -> float:
        """For how long ranks have been held, all in all: so much longer the run may take."""
        return self._held_before_s + (time.monotonic() - self._held_since if self._held else 0.0)

    def _release(self, reached: Reached, deed: Mapping[str, Any] | None = None) -> None:
        held_s = self.held_s
        self._held.remove(reached)
        if not self._held:
            self._held_before_s = held_s
        if self._agents is not None:
            self._agents.say(reached.node, Release(self._agents.run, reached.rank, reached.hold, dict(deed or {})))

    # -- its end

    def rest(self) -> None:
        """Nothing sets anything off any more."""
        self._resting, self._timers = True, []
        self._done = lambda: None

    def finish(self) -> None:
        """Take everything back, what came last first, while the agents of the run are still there."""
        self.rest()
        if self._agents is None:
            return
        for one in sorted(self._armed, key=lambda one: one.begun or 0.0, reverse=True):
            if one.state in (APPLYING, IN_FORCE) and not (self._removed and one.fault.what.leaves_running is not None):
                self._heal(one, "the run ended")
        self._agents.listen_for(lambda: not self._running, _HEAL_S)
        self._agents.look()
        self._line = self._target.line = None

    def end(self) -> None:
        """The run is over: what has not come never does."""
        for one in self._armed:
            if one.state == WAITING:
                one.wrong = one.wrong or "it never came"

    def close(self) -> None:
        """Let go of what it listened with; what still is in force is in the journal."""
        self._line = self._target.line = None
        self._thread.shutdown(wait=True)
        os.close(self._wake_r)
        os.close(self._wake_w)

    def told(self, record: Record, expect: Expect) -> tuple[tuple[Mapping[str, Any], ...], list[Expectation]]:
        """Those that were set off, as results tell them; and each as something that had to come, and to be noticed."""
        done = sorted((one for one in self._armed if one.begun is not None), key=lambda one: one.begun or 0.0)
        results: tuple[Mapping[str, Any], ...] = tuple(one.to_result(self._began) for one in done)
        expected, within_s = [one.expectation() for one in self._armed], detected_within(expect)
        if results or within_s is not None:
            detections = find_detections(facts_of(record))
            results = with_detections(results, detections)
            if within_s is not None:
                expected.append(check_detected(within_s, detections))
        return results, expected
