"""Hold this process at the events that trigger faults: its n-th call of an operation, a phase, a note.

At such an event the worker reports to the agent and waits until the lab releases it. Then it performs the fault
actions that the lab requests: it raises, hangs, pauses, or changes the tensors of its call. Holding is off until
`arm`, and in each fork of the armed process. A process that is not armed pays for one test per event.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import itertools
import json
import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ....node.messages.agent import Reached
from ....node.rank import note
from ....node.recorder import phases

_FOR_GOOD_S = 30 * 86400.0


def perform_action(action: Mapping[str, Any], tensors: Sequence[Any], rank: int) -> None:
    """Perform a fault action, named by its one key; do nothing without a key.

    Raises:
        BaseException: The action raises it.
    """
    for name, parameters in action.items():
        if name == "raise":
            raise getattr(builtins, parameters["error"])(parameters["message"])
        if name == "hang":
            hang_thread(parameters.get("for_s") or _FOR_GOOD_S, with_lock=parameters["lock"])
        elif name == "pauses":
            begin_pauses(parameters, rank)
        elif name in ("nan", "flip"):
            try:
                _change_element(int(parameters["element"]), parameters.get("bit"), tensors)
            except (ValueError, RuntimeError, NotImplementedError) as error:
                why = str(error).partition("\n")[0]
                print(f"lab: element {parameters['element']} of rank {rank} was not changed: {why}", file=sys.stderr)


def hang_thread(seconds: float, *, with_lock: bool) -> None:
    """Sleep in a wait that no signal ends; with the GIL, no other thread runs Python code meanwhile."""
    libc = (ctypes.PyDLL if with_lock else ctypes.CDLL)(None)
    mutex = ctypes.create_string_buffer(128)  # zeros are an unlocked mutex
    until = time.time() + seconds
    due = (ctypes.c_long * 2)(int(until), int(until % 1 * 1e9))
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_timedlock(mutex, due)  # this thread holds it already


def begin_pauses(parameters: Mapping[str, Any], rank: int) -> threading.Thread:
    """Hold the GIL for a while again and again, like a garbage collector that scans a large heap."""
    draw = random.Random(f"{parameters['seed']}-{rank}")
    until = time.monotonic() + (parameters.get("for_s") or _FOR_GOOD_S)

    def pause() -> None:
        while time.monotonic() < until:
            time.sleep(draw.uniform(0.5, 1.5) * parameters["every_s"])
            hang_thread(parameters["last_s"], with_lock=True)

    thread = threading.Thread(target=pause, name="pauses", daemon=True)
    thread.start()
    return thread


def _change_element(index: int, bit: int | None, tensors: Sequence[Any]) -> None:
    """Flip a bit of one element, counted over all tensors, whatever its strides; without a bit, make it NaN."""
    import torch

    for tensor in tensors:
        if index < tensor.numel():
            break
        index -= tensor.numel()
    else:
        raise ValueError("the call has fewer elements")
    one = tensor.data  # autograd does not check the version of it
    for size in reversed(tensor.shape):
        index, position = divmod(index, size)
        one = one.select(-1, position)
    with torch.no_grad():
        if bit is None:
            one.fill_(float("nan"))
            return
        real = torch.view_as_real(one)[0] if one.is_complex() else one
        width = real.element_size() * 8
        if bit >= width:
            raise ValueError(f"a number of {width} bits has no bit {bit}")
        bits = real.view({8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width])
        bits.bitwise_xor_(-(1 << bit) if bit == width - 1 and bits.dtype != torch.uint8 else 1 << bit)


CALL, PHASE, NOTE = "op", "phase", "note"
"""The kinds of events, named as in the keys of a trigger."""
BEFORE, AFTER = "before", "after"
Report = Callable[[int, "Point", int, Any, tuple[dict[str, Any], ...]], None]
_LONGEST_VALUE = 1000
"""Characters of a note that a trigger can compare; a scalar of a scenario is never longer."""
_MOST_TENSORS = 256
"""The agent gets the dtypes and sizes of this many tensors; no call of a test has more."""


class Point(NamedTuple):
    """An event that triggers or heals a fault."""

    trigger: int
    """Index of the fault in the plan."""
    heals: bool
    nth: int
    """The n-th event of its name; 0: each."""
    edge: str


class Holds:
    """The events that hold this process."""

    def __init__(self) -> None:
        self.armed = False
        """Whether there is any such event."""
        self._report: Report = lambda *_: None
        self._rank = -1
        self._fd = -1
        self._rest = b""
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._points: dict[tuple[str, str], list[Point]] = {}
        self._counts: dict[tuple[str, str], Callable[[], int]] = {}
        self._phases: defaultdict[str, list[int]] = defaultdict(list)
        """How many events have begun, by name."""
        self._holds = itertools.count(1)
        self._lock = threading.RLock()  # a signal handler may reach an event while its thread is held at another

    def arm(self, triggers: Iterable[Mapping[str, Any]], fd: int, rank: int, report: Report) -> None:
        """Hold at these events from now on.

        Args:
            triggers: As in `WorkerStart`.
            fd: Where the agent sends releases and fault actions.
            rank: The rank of this process.
            report: Sends the agent the number of a hold, its event, the count of its name, the value of a note,
                and the tensors of a call.
        """
        for trigger in triggers:
            if trigger.get("sidecar"):  # no event
                continue
            what = next(what for what in (CALL, PHASE, NOTE) if trigger.get(what))
            nth = 0 if what == NOTE else int(trigger.get("count", 1))
            point = Point(int(trigger["trigger"]), bool(trigger.get("heals")), nth, trigger.get("edge", BEFORE))
            self._points.setdefault((what, trigger[what]), []).append(point)
            self._counts.setdefault((what, trigger[what]), functools.partial(next, itertools.count(1)))
        self._fd, self._rank, self._report, self.armed = fd, rank, report, bool(self._points)

    def forget(self) -> None:
        """Hold no event any more: this is a fork, or no one is left who could release the process."""
        self.armed, self._points, self._fd = False, {}, -1

    def forked(self) -> None:
        """Disarm a fork of the armed process; a thread that does not exist here may own the lock."""
        self.forget()
        self._lock = threading.RLock()

    def points(self, what: str) -> dict[str, list[Point]]:
        """Return all events that are calls, or phases, or notes, by name."""
        return {name: points for (kind, name), points in self._points.items() if kind == what}

    def count(self, what: str, name: str) -> int:
        """Return the count of the event of this name that now begins, from 1; 0 if no trigger has this name."""
        count = self._counts.get((what, name)) if self.armed else None
        return 0 if count is None else count()

    def edges(self, what: str, name: str, nth: int) -> set[str]:
        """Return the edges at which this event is held."""
        return {point.edge for point in self._points.get((what, name), ()) if point.nth in (0, nth)}

    def reach(
        self, what: str, name: str, nth: int, edge: str, *, value: Any = None, tensors: Sequence[Any] = ()
    ) -> None:
        """Wait here if a trigger matches, then perform the fault actions that the lab sends.

        Args:
            what: The kind of the event.
            name: Of the operation, phase, or note.
            nth: The count of its name.
            edge: `before` or `after`.
            value: The value of the note.
            tensors: The tensors of the call, before or after it; fault actions may change them.

        Raises:
            BaseException: A fault action raises it.
        """
        for point in self._points.get((what, name), ()) if nth else ():
            if point.nth in (0, nth) and point.edge == edge:
                perform_action(self._hold(point, nth, value, tensors), tensors, self._rank)

    def begin_phase(self, name: str) -> None:
        """Hold a phase that is about to begin."""
        nth = self.count(PHASE, name)
        self.reach(PHASE, name, nth, BEFORE)
        self._phases[name].append(nth)

    def end_phase(self, name: str) -> None:
        """Hold after the phase of this name that began last."""
        if self._phases[name]:
            self.reach(PHASE, name, self._phases[name].pop(), AFTER)

    def noted(self, name: str, value: Any) -> None:
        """Hold a note."""
        self.reach(NOTE, name, self.count(NOTE, name), BEFORE, value=value)

    def hold_compiled_calls(self, compiled: Any) -> None:
        """Have the compiled recorder, if there is one, count and hold the calls that triggers name."""
        points = self.points(CALL)
        if compiled is not None and points:
            edges = {op: [(point.nth, point.edge == AFTER) for point in points[op]] for op in points}
            compiled.hold(functools.partial(self.reach, CALL), edges)
            for op in points:
                self._counts[CALL, op] = functools.partial(compiled.count, op)

    def hold_calls(self, kind: Any) -> None:
        """Return the methods of a class of process groups that hold the calls which triggers name."""
        from ....node.recorder.python_group import OPERATIONS

        for op in self.points(CALL):
            for method in OPERATIONS.get(op, ()):
                if hasattr(kind, method):
                    setattr(kind, method, self._held(op, getattr(kind, method)))

    def _held(self, op: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapper(group: Any, *arguments: Any, **named: Any) -> Any:
            nth = self.count(CALL, op)
            edges = self.edges(CALL, op, nth) if nth else ()
            inputs, results = _tensors(op, (*arguments, *named.values())) if edges else ((), ())
            self.reach(CALL, op, nth, BEFORE, tensors=inputs)
            if AFTER not in edges:
                return method(group, *arguments, **named)
            try:
                if (work := method(group, *arguments, **named)) is not None:
                    with suppress(Exception):  # the next one who waits for the work gets its error
                        wait_ahead(work)
            finally:
                self.reach(CALL, op, nth, AFTER, tensors=results)
            return work

        return wrapper

    def _hold(self, point: Point, nth: int, value: Any, tensors: Sequence[Any]) -> Mapping[str, Any]:
        is_scalar = isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _LONGEST_VALUE)
        with self._lock:
            hold = next(self._holds)
            if self.armed:
                try:
                    self._report(hold, point, nth, value if is_scalar else None, describe_tensors(tensors))
                except OSError:  # the agent has gone
                    self.forget()
            while hold not in self._answers and self.armed:
                self._receive()
            return self._answers.pop(hold, {})

    def _receive(self) -> None:
        piece = b""
        with suppress(OSError):  # the script has closed it
            piece = os.read(self._fd, 4096)
        if not piece:
            self.forget()
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            with suppress(ValueError, TypeError, KeyError):
                answer = json.loads(line)
                self._answers[int(answer["hold"])] = dict(answer["action"])


def describe_tensors(tensors: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Describe the tensors of a call, as in `Reached`."""
    return tuple(
        {
            "elements": tensor.numel(),
            "dtype": str(tensor.dtype).partition(".")[2],
            "bits": tensor.element_size() * (4 if tensor.is_complex() else 8),
        }
        for tensor in tensors[:_MOST_TENSORS]
    )


def wait_ahead(work: Any) -> None:
    """Wait for a call; the script can wait again."""
    result, failure = None, None
    try:
        result = work.wait()
    except Exception as error:
        failure = error
        raise
    finally:
        if hasattr(work, "ahead"):  # the recorder has it, and a second wait is not allowed
            work.ahead = result, failure


def _tensors(op: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the input tensors of a call, and its output tensors."""
    from ....node.recorder.python_group import describe_call

    try:
        _, inputs, outputs = describe_call(op, arguments)
    except Exception:  # unexpected arguments
        return (), ()
    return inputs or (), (inputs if outputs is None else outputs) or ()


holds = Holds()
"""The events of this process."""
os.register_at_fork(after_in_child=holds.forked)


def arm_holds(spec: Mapping[str, Any]) -> None:
    """Arm the holds of a worker, which reports to the agent over its socket for notes."""
    if spec.get("hold_fd") is None:
        return
    rank = spec["rank"]

    def report(hold: int, point: Point, nth: int, value: Any, tensors: tuple[dict[str, Any], ...]) -> None:
        reached = Reached(rank, time.time(), hold=hold, trigger=point.trigger, heals=point.heals)
        note.send_statement(spec["note_socket"], reached._replace(call=nth, value=value, tensors=tensors))

    holds.arm(spec["triggers"], spec["hold_fd"], rank, report)
    phases.watch_phases(holds.points(PHASE), holds.begin_phase, holds.end_phase)


noted, hold_compiled_calls, hold_python_calls = holds.noted, holds.hold_compiled_calls, holds.hold_calls
