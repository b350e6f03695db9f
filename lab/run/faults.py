"""The faults of one run: what sets each off is listened for, it is done beside the run, and taken back at its end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.engine.protocol import Engine
from lab.errors import LabError
from lab.fault.fault import Fault, fault_data, fault_sentence
from lab.fault.kind import Ground
from lab.fault.when import START
from lab.node.messages import Note, Output
from lab.plan.cluster import ClusterInfo
from lab.record import events
from lab.record.result import Expectation
from lab.run.ground import ClusterGround
from lab.verdict.expectations import equal
from lab.verdict.patterns import TooLong, found_in
from lab.words import format_value

if TYPE_CHECKING:
    from lab.run.conversation import Conversation

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_LONGEST_LINE = 64 * 1024
_LONGEST_SHOWN = 100
Record = Callable[[events.Event], object]


@dataclass
class _Armed:
    """One fault, and what became of it."""

    fault: Fault
    at: float | None = None
    """Unix time at which its event came; None: it has not."""
    why: str = ""
    """What that was."""
    wrong: str = ""
    """Why it could not be done, or not waited for."""

    @property
    def when(self) -> str:
        return fault_sentence(fault_data(self.fault)).removeprefix(f"{self.fault} ")


class Faults:
    """The faults of a run.

    Args:
        planned: in the order in which they are looked at.
        engine: of the cluster.
        cluster: as it was before the run.
    """

    def __init__(self, planned: Sequence[Fault], engine: Engine, cluster: ClusterInfo) -> None:
        self._ground: Ground = ClusterGround(engine, cluster)
        self._armed = [_Armed(fault) for fault in planned]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="faults")
        """One after the other, beside the run: starting a node takes seconds."""
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._running: list[tuple[_Armed, Future[None]]] = []
        self._lines: dict[tuple[int, int], bytes] = {}
        """What each rank has printed of a line that goes on, by rank and stream."""
        self._record: Record = lambda _: None
        self._before: list[events.Event] = []
        """Events of before there was a record."""
        self._began: float | None = None
        """Unix time at which the workers were let go."""
        self._done: Callable[[], object] = lambda: None

    # -- before and while it runs

    def begin(self) -> None:
        """Do those that come before the run.

        Raises:
            LabError: one cannot be done.
        """
        for one in self._armed:
            if one.fault.when == START:
                one.at = time.time()
                _do(self._ground, one.fault)
                self._before.append(self._event(one, None))

    def attend(self, agents: Conversation, record: Record, done: Callable[[], object]) -> None:
        """Take part in a conversation, as the workers are let go; `done` is called when something is in force."""
        self._record, self._began, self._done = record, time.time(), done
        for event in self._before:
            record(event)
        agents.hear(self._wake_r, self._look)

    def hear(self, message: Any) -> None:
        """See whether what a rank notes or prints sets something off."""
        waiting = [one for one in self._armed if one.at is None and not one.wrong]
        if not waiting or message.rank < 0:
            return
        if isinstance(message, Note):
            for one in waiting:
                if _fits(one.fault, message):
                    self._set_off(one, message.rank, f"noted {message.name} = {format_value(message.value, 60)}")
        elif isinstance(message, Output):
            by_lines = [one for one in waiting if one.fault.when.log is not None]
            lines = self._whole_lines(message) if by_lines else ""
            for one in by_lines if lines else ():
                self._search(one, message.rank, lines)

    @property
    def pending(self) -> bool:
        """Whether something is being done now."""
        return bool(self._running)

    def _whole_lines(self, output: Output) -> str:
        key = (output.rank, output.stream)
        whole, newline, rest = (self._lines.get(key, b"") + output.data).rpartition(b"\n")
        self._lines[key] = rest[-_LONGEST_LINE:]
        return (whole + newline).decode("utf-8", "replace")

    def _search(self, one: _Armed, rank: int, lines: str) -> None:
        when = one.fault.when
        if when.log is None or when.rank not in (None, rank):
            return
        try:
            found = found_in(lines, when.log, re.MULTILINE)
        except (TooLong, OSError) as error:
            one.wrong = str(error)
            return
        if found is not None:
            self._set_off(one, rank, f"printed {format_value(found, _LONGEST_SHOWN)}")

    def _set_off(self, one: _Armed, rank: int, what: str) -> None:
        one.at, one.why = time.time(), f"rank {rank} {what}"
        self._record(self._event(one, rank))
        future = self._thread.submit(_do, self._ground, one.fault)
        self._running.append((one, future))
        future.add_done_callback(self._wake)

    def _wake(self, _: object) -> None:
        os.write(self._wake_w, b".")

    def _event(self, one: _Armed, rank: int | None) -> events.Fault:
        return events.Fault(one.at or 0.0, str(one.fault), rank, _node(one.fault), one.why)

    def _look(self) -> None:
        """Say of what was done that it is, or why not."""
        try:
            os.read(self._wake_r, 64)
        except BlockingIOError:
            pass
        for one, future in [pair for pair in self._running if pair[1].done()]:
            self._running.remove((one, future))
            error = future.exception()
            if error is None:
                self._done()
                continue
            one.wrong = str(getattr(error, "message", error))
            self._record(events.FaultFailed(time.time(), str(one.fault), _node(one.fault), one.wrong))

    # -- its end

    def end(self) -> None:
        """Wait for what is being done; nothing sets anything off any more, and nobody is told."""
        self._done = lambda: None
        self._thread.shutdown(wait=True)
        self._look()
        for one in self._armed:
            one.wrong = one.wrong or ("" if one.at else "it never came")

    def close(self) -> None:
        """Let go of what it listened with."""
        self._thread.shutdown(wait=True)
        os.close(self._wake_r)
        os.close(self._wake_w)

    def undo(self) -> list[str]:
        """Take everything back, what came last first; returns what could not be, a sentence each."""
        wrong = []
        for one in reversed(self._armed):
            if one.at is not None:
                try:
                    one.fault.what.undo(self._ground)
                except (LabError, OSError) as error:
                    wrong.append(f"{one.fault} could not be taken back: {getattr(error, 'message', error)}")
        return wrong

    def told(self) -> tuple[Mapping[str, Any], ...]:
        """Those that were set off, as results tell them."""
        done = sorted((one for one in self._armed if one.at is not None), key=lambda one: one.at or 0.0)
        return tuple(
            {
                "fault": str(one.fault),
                "node": _node(one.fault),
                "at_s": round(one.at - self._began, 6) if one.why and one.at and self._began else None,
                "why": one.why,
                "failed": one.wrong,
            }
            for one in done
        )

    def expectations(self) -> list[Expectation]:
        """Each as something that had to come."""
        return [
            Expectation(
                what=f"fault {one.fault}",
                expected=one.when,
                got=f"({one.wrong})" if one.wrong else one.why or one.when,
                met=not one.wrong,
            )
            for one in self._armed
        ]


def _fits(fault: Fault, note: Note) -> bool:
    when = fault.when
    if when.note != note.name or when.rank not in (None, note.rank):
        return False
    return when.equals is None or equal(when.equals, note.value, _RELATIVE, _ABSOLUTE)


def _node(fault: Fault) -> str:
    """The node that it is done to, where that is one."""
    return fault.what.nodes[0] if len(fault.what.nodes) == 1 else ""


def _do(ground: Ground, fault: Fault) -> None:
    """Apply a fault and read back whether it is in force.

    Raises:
        LabError: it cannot be done.
    """
    fault.what.apply(ground)
    if not fault.what.read_back(ground).in_force:
        raise LabError(f"{fault} was done, and is not in force")
