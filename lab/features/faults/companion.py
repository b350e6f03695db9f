"""The faults of one run: each is injected at its event, in a thread of its own, and undone at the end at the latest."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.diagnosis.expectations import Searches, TooLong, equals_expected
from lab.errors import LabError
from lab.features.faults.detection import Detection, check_detected, facts_of, find_detections
from lab.features.faults.fault import START, Fault, FaultsPart, When, detected_within, fault_data, fault_sentence
from lab.features.faults.injection import InForce, inject_fault
from lab.features.faults.target import ClusterTarget
from lab.node.messages.agent import Output, Reached, Release, Started
from lab.record import events
from lab.record.result import Expectation
from lab.run.options import Companion
from lab.words import format_duration, format_value

if TYPE_CHECKING:
    from lab.engine.protocol import Engine
    from lab.plan.cluster import ClusterInfo
    from lab.plan.plan import Plan
    from lab.record.read import Record
    from lab.run.agent_channels import AgentChannels
    from lab.spec.scenario import Expect


_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_LONGEST_LINE = 64 * 1024
_LONGEST_SHOWN = 100
_LONGEST_NOTE = 60


def list_triggers(faults: Sequence[Fault]) -> tuple[dict[str, Any], ...]:
    """Return the events at which the agents hold ranks, as in `Prepare`, and whether the run filters file writes."""
    points: list[dict[str, Any]] = []
    if any(fault.what.of_writes for fault in faults):
        points.append({"trigger": -1, "sidecar": "faults.write_filter"})
    for index, fault in enumerate(faults):
        for event, heals in fault.events():
            if event.exact:
                names = ("rank", "note", "op", "phase", "count", "edge")
                fields = {name: getattr(event, name) for name in names if getattr(event, name) is not None}
                points.append({"trigger": index, "heals": heals, **fields})
    return tuple(points)


def describe_reached(event: When, reached: Reached) -> str:
    """Describe an event that a held rank has reached: `rank 0 noted step = 3`; empty if it is another event."""
    if event.rank not in (None, reached.rank):
        return ""
    who, what = f"rank {reached.rank}", event.op or event.phase
    if event.note is not None:
        fits = event.equals is None or equals_expected(event.equals, reached.value, _RELATIVE, _ABSOLUTE)
        return f"{who} noted {event.note} = {format_value(reached.value, _LONGEST_NOTE)}" if fits else ""
    return f"{who} {'completed' if event.edge == 'after' else 'reached'} {what} {event.count}" if what else ""


class Cause(NamedTuple):
    """Why a fault is injected or healed."""

    why: str
    rank: int | None = None
    """The rank of the event."""
    reached: Reached | None = None
    """The event, if that rank is held for it."""


_NOTHING = Cause("")
WAITING, APPLYING, IN_FORCE, HEALING, FAILED = "waiting", "applying", "in force", "healing", "failed"


@dataclass
class Armed:
    """A fault of a run, and its state."""

    index: int
    """The index of the fault in the plan."""
    fault: Fault
    state: str = WAITING
    in_force: InForce | None = None
    """Heals the fault, once it was in force."""
    begun: float | None = None
    """Unix time at which the trigger occurred; None: it has not occurred."""
    at: float | None = None
    """Unix time since when the fault is in force."""
    healed: float | None = None
    """Unix time at which the fault was undone."""
    cause: Cause = _NOTHING
    """The trigger."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Measurements on the nodes."""
    failure: str = ""
    """Why the fault could not be injected, or its trigger not detected."""

    def awaits(self, *, heals: bool) -> bool:
        """Return whether its trigger can occur now; with `heals`, the event that heals it."""
        return self.state in ((APPLYING, IN_FORCE) if heals else (WAITING,))

    @property
    def node(self) -> str:
        """The node that it acts on; None if it does not act on one node."""
        nodes = self.fault.what.nodes
        return nodes[0] if len(nodes) == 1 else ""

    @property
    def point(self) -> dict[str, Any]:
        """The call, or phase, at which a rank was held for it."""
        op = self.fault.when.op or self.fault.when.phase
        return {"op": op, "call": self.cause.reached.call} if op and self.cause.reached is not None else {}

    def event(self) -> events.Fault:
        """Return the event that says that the fault is in force."""
        event = events.Fault(self.at or time.time(), str(self.fault), self.cause.rank, self.node, self.cause.why)
        return event._replace(number=self.index, begun=self.begun, measured=dict(self.measured) or None, **self.point)

    def to_result(self, began: float | None) -> dict[str, Any]:
        """Return its entry in the result; `began`: Unix time at which the workers started."""

        def since_begin(moment: float | None) -> float | None:
            return round(moment - began, 6) if moment and began else None

        at_s, healed_s = since_begin(self.at or self.begun) if self.cause.why else None, since_begin(self.healed)
        target = {"fault": str(self.fault), "node": self.node, "rank": self.cause.rank, **self.point}
        outcome = {"why": self.cause.why, "found": dict(self.measured), "failed": self.failure}
        return {**target, "at_s": at_s, "healed_s": healed_s, **outcome}

    def expectation(self) -> Expectation:
        """Return the expectation that the trigger occurs."""
        when = fault_sentence(fault_data(self.fault)).removeprefix(f"{self.fault} ")
        got = f"({self.failure})" if self.failure else self.cause.why or when
        return Expectation(what=f"fault {self.fault}", expected=when, got=got, met=not self.failure)


_HEAL_S = 120.0
"""Undoing all faults takes less than this."""
_SELDOM_S = 1.0
_WORKING_S = 0.002
"""Interval of polling the thread of faults while it works."""
Recorder = Callable[[events.Event], object]


class Faults(Companion):
    """The companion for the faults of one run.

    Args:
        part: Of the plan.
        plan: Of the run.
        engine: Of the cluster.
        cluster: The cluster before the run.
        removed: Whether the cluster is removed after the run; then nodes are not started just to undo a fault.
    """

    def __init__(
        self, part: FaultsPart, plan: Plan, engine: Engine, cluster: ClusterInfo, *, removed: bool = False
    ) -> None:
        self.triggers = list_triggers(part.faults)
        self._removed = removed
        self._target = ClusterTarget(engine, cluster)
        self._target.addresses = {node.name: node.address for node in cluster.nodes[: plan.nnodes]}
        self._target.ranks = {worker.rank: worker.node for worker in plan.workers}
        self._run = plan.run
        self._armed = [Armed(index, fault) for index, fault in enumerate(part.faults)]
        self._events = [(one, event, heals) for one in self._armed for event, heals in one.fault.events()]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="faults")
        """Injects one fault after the other, in parallel to the run, because starting a node takes seconds."""
        self._running: list[tuple[Future[None], Armed, Cause, bool]] = []
        """Work of the thread: its future, the fault, the cause, and whether it heals."""
        self._timers: list[tuple[float, Callable[[], object]]] = []
        """Monotonic times, and the actions due then."""
        self._held: list[Reached] = []
        self._held_since = 0.0
        """Monotonic time since when any rank is held."""
        self._held_before_s = 0.0
        self._unfinished: dict[tuple[int, int], bytes] = {}
        """The unfinished line of each rank, by rank and stream."""
        self._agents: AgentChannels | None = None
        self._resting = False
        """Whether triggers are ignored from now on."""
        self._record: Recorder = lambda _: None
        self._done: Callable[[], object] = lambda: None
        self._began: float | None = None
        """Unix time at which the workers started."""

    # -- before and while it runs

    def before_run(self) -> None:
        """Inject the faults that precede the run.

        Raises:
            LabError: A fault cannot be injected.
        """
        for one in self._armed:
            one.fault.what.check(self._target)
        for one in self._armed:
            if one.fault.when == START:
                one.begun = time.time()
                self._apply(one)
                one.state = IN_FORCE

    def follow_run(self, agents: AgentChannels, record: Recorder, done: Callable[[], object]) -> None:
        """Follow the run as the workers start; call `done` whenever a fault comes into force."""
        self._agents, self._record, self._done, self._began = agents, record, done, time.time()
        on_poll = agents.on_poll
        agents.on_poll = lambda: min(on_poll(), self._fire())
        for one in self._armed:
            if one.state == IN_FORCE:
                self._report_in_force(one)
        for one, event, heals in self._events:
            if event.at_s is not None:
                self._come_after(event.at_s, one, heals=heals)

    def handle_message(self, message: Any) -> None:
        """Check whether a message about ranks triggers a fault."""
        if isinstance(message, Reached):
            self._handle_reached(message)
        elif isinstance(message, Started):
            self._target.ranks = {**self._target.ranks, message.rank: message.node}
        elif isinstance(message, Output) and message.rank >= 0:
            self._handle_output(message)

    def _handle_reached(self, reached: Reached) -> None:
        """Handle a held rank: release it once its fault is in force, or at once if it triggers nothing."""
        if not self._held:
            self._held_since = time.monotonic()
        self._held.append(reached)
        comes = False
        for one, event, heals in self._events:
            if (one.index, heals) == (reached.trigger, reached.heals) and (why := describe_reached(event, reached)):
                comes = self._come(one, Cause(why, reached.rank, reached), heals=heals)
        if not comes:
            self._release(reached)

    def _handle_output(self, output: Output) -> None:
        waiting = [
            (one, event.log, heals)
            for one, event, heals in self._events
            if event.log is not None and event.rank in (None, output.rank) and one.awaits(heals=heals)
        ]
        if not waiting:
            return
        key = (output.rank, output.stream)
        whole, newline, rest = (self._unfinished.get(key, b"") + output.data).rpartition(b"\n")
        self._unfinished[key] = rest[-_LONGEST_LINE:]
        for one, pattern, heals in waiting if newline else ():
            try:
                match = Searches().find((whole + newline).decode("utf-8", "replace"), pattern, re.MULTILINE)
            except (TooLong, OSError) as error:
                one.state, one.failure = FAILED, str(error)
                continue
            if match is not None:
                why = f"rank {output.rank} printed {format_value(match, _LONGEST_SHOWN)}"
                self._come(one, Cause(why, output.rank), heals=heals)

    def _come(self, one: Armed, cause: Cause, *, heals: bool) -> bool:
        """Handle an event; return whether it triggers a fault."""
        if self._resting or not one.awaits(heals=heals):
            return False
        if heals:
            return self._heal(one, cause)
        one.state, one.begun, one.cause = APPLYING, time.time(), cause
        unfit = one.fault.what.unfit(cause.reached.tensors) if cause.reached is not None else ""
        if unfit:
            self._fail(one, unfit)
            return False
        if not one.fault.what.by_worker:
            self._running.append((self._thread.submit(self._apply, one), one, cause, False))
            return True
        one.at = time.time()
        self._report_in_force(one)
        if cause.reached is not None:
            self._release(cause.reached, one.fault.worker_actions)
        return True

    def _come_after(self, seconds: float, one: Armed, *, heals: bool) -> None:
        due = partial(self._come, one, Cause(f"{format_duration(seconds)} had passed"), heals=heals)
        self._timers.append((time.monotonic() + seconds, due))

    def _fail(self, one: Armed, why: str) -> None:
        one.state, one.failure = FAILED, why
        self._record(events.FaultFailed(time.time(), str(one.fault), one.node, why))

    def _heal(self, one: Armed, cause: Cause) -> bool:
        if one.fault.what.by_worker:
            return False
        one.state = HEALING
        self._running.append((self._thread.submit(self._undo, one), one, cause, True))
        return True

    @property
    def pending(self) -> bool:
        """Whether a fault is being injected or undone now."""
        return bool(self._running)

    # -- in the thread of faults

    def _apply(self, one: Armed) -> None:
        until = time.time() + one.fault.for_s if one.fault.for_s is not None else None
        one.in_force = inject_fault(self._target, one.fault.what, self._run, until)
        one.at, one.measured = time.time(), one.in_force.measured

    def _undo(self, one: Armed) -> None:
        if one.in_force is not None:
            with suppress(LabError):  # undo the fault even if the event cannot be recorded
                one.measured = {**one.measured, **one.fault.what.count_effects(self._target)}
            one.in_force.heal()
            one.healed = time.time()

    # -- in the thread of the run

    def _proceed(self) -> None:
        """Report finished work of the thread, and release the ranks that were held for it."""
        for work in [work for work in self._running if work[0].done()]:
            self._running.remove(work)
            future, one, cause, heals = work
            if (error := future.exception()) is not None:
                if not heals:  # a fault that cannot be healed stays in the journal
                    self._fail(one, str(getattr(error, "message", error)))
            elif not heals:
                self._report_in_force(one)
                self._done()
            elif one.healed is not None:
                self._record(events.FaultHealed(one.healed, str(one.fault), one.index, cause.why))
                self._done()
            if cause.reached is not None:
                self._release(cause.reached)

    def _report_in_force(self, one: Armed) -> None:
        one.state = IN_FORCE if one.state == APPLYING else one.state
        self._record(one.event())
        if one.fault.for_s is not None:
            self._come_after(one.fault.for_s, one, heals=True)

    def _fire(self) -> float:
        """Run the actions that are due; return the seconds until the next one is due."""
        self._proceed()
        now = time.monotonic()
        for timer in [timer for timer in self._timers if timer[0] <= now]:
            self._timers.remove(timer)
            timer[1]()
        return min([_WORKING_S if self._running else _SELDOM_S, *(due - now for due, _ in self._timers)])

    # -- ranks that are held

    @property
    def held_s(self) -> float:
        """Seconds for which ranks have been held; the time limit of the run grows by them."""
        return self._held_before_s + (time.monotonic() - self._held_since if self._held else 0.0)

    def _release(self, reached: Reached, actions: Mapping[str, Any] | None = None) -> None:
        held_s = self.held_s
        self._held.remove(reached)
        if not self._held:
            self._held_before_s = held_s
        if self._agents is not None:
            line = json.dumps({"hold": reached.hold, "action": dict(actions or {})})
            self._agents.send(reached.node, Release(self._agents.run, reached.rank, "hold", line))

    # -- the end of the run

    def rest(self) -> None:
        """Ignore triggers from now on."""
        self._resting, self._timers = True, []
        self._done = lambda: None

    def finish(self) -> None:
        """Undo all faults, the last one first, while the agents of the run are still connected."""
        self.rest()
        if self._agents is None:
            return
        for one in sorted(self._armed, key=lambda one: one.begun or 0.0, reverse=True):
            if one.state in (APPLYING, IN_FORCE) and not (self._removed and one.fault.what.leaves_running is not None):
                self._heal(one, Cause("the run ended"))
        self._agents.listen_for(lambda: not self._running, _HEAL_S)
        self._agents.poll_nodes()

    def after_run(self) -> None:
        """Mark the faults that were not triggered."""
        for one in self._armed:
            if one.state == WAITING:
                one.failure = one.failure or "its trigger did not occur"

    def close(self) -> None:
        """End the thread; faults that are still in force stay in the journal."""
        self._thread.shutdown(wait=True)

    def report_results(self, record: Record, expect: Expect) -> tuple[tuple[Mapping[str, Any], ...], list[Expectation]]:
        """Return the triggered faults for the result, and the expectations that each occurred and was noticed."""
        done = sorted((one for one in self._armed if one.begun is not None), key=lambda one: one.begun or 0.0)
        expected, within_s = [one.expectation() for one in self._armed], detected_within(expect)
        detections = find_detections(facts_of(record)) if done or within_s is not None else []
        if within_s is not None:
            expected.append(check_detected(within_s, detections))
        by_number = {one.number: one for one in detections}
        unnoticed = Detection(fault="", time=0.0)
        results = ({**one.to_result(self._began), **by_number.get(one.index, unnoticed).to_result()} for one in done)
        return tuple(results), expected
