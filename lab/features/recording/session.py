"""Record the worlds of a pytest session test by test, in a process next to pytest, and end tests that stand still.

pytest sends messages about its tests and asks for the verdicts of those that failed. This process is no child of
pytest, so tests that wait for any child or count their children do not notice it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.features.recording.package import INTERRUPT, LONGEST_MESSAGE
from lab.features.recording.supervisor import Options, Supervisor
from lab.features.recording.world import World, started_at
from lab.frozen import Frozen
from lab.node import processes
from lab.node.messages.agent import Exited, Joined, Trace
from lab.node.rank_process import JoinedProcess
from lab.record.result import Result
from lab.report.sanitize import sanitize_text
from lab.report.style import Style
from lab.report.verdict import verdict_text
from lab.words import clip_end, format_count, format_duration

_LONGEST_VERDICT = 12_000
_MOST_SHOWN = 4
"""Verdicts in the report of one test."""
_PATIENCE_S = 0.4
"""Time in which the ranks of a failed test may still end by themselves."""
_COMPUTES = 0.5
"""Share of the time in which pytest uses a core, from which on it computes."""
_IDLE = 0.02
_STEPS = ((0.0, "ranks", signal.SIGTERM), (0.8, "ranks", signal.SIGKILL), (1.0, "started", signal.SIGTERM),
          (1.6, "started", signal.SIGKILL), (1.8, "pytest", INTERRUPT))  # fmt: skip
"""How a test is ended: seconds after its standstill was diagnosed, which processes get a signal, and which one."""
_INTERRUPT_AGAIN_S = 1.0
_SHARED = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch_shm_manager", "lab.features.pytest")
"""Words in the command lines of children of pytest that later tests use too."""


class Settings(Frozen):
    """What pytest passes to this process."""

    pid: int
    """Process of pytest."""
    folder: str
    """Folder of the tests."""
    runs: str
    """Folder of the records."""
    stall_s: float
    """Seconds without progress after which a test is ended; 0: never."""
    notes: int
    """Descriptor of the socket for statements of recorded processes."""
    channel: int
    """Descriptor of the socket for messages of pytest."""


class _Test:
    """The running test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began, self.began_unix = time.monotonic(), time.time()
        self.active: dict[World, float] = {}
        """World -> when one of its ranks last joined or made a call."""
        self.shown: dict[World, Result] = {}
        """The worlds with a verdict."""
        self.note = ""
        """Why the test is ended, if no world explains it."""
        self.stalled: float | None = None
        """When that was noticed."""
        self.steps = 0
        self.is_paused = False
        """Whether its user is in a debugger."""
        self.progressed = self.began
        """When something happened last."""
        self.cpu_s: float | None = None
        """Processor time of pytest at that moment."""


class SessionSupervisor(Supervisor):
    """The worlds of the tests of one pytest process."""

    def __init__(self, settings: Settings) -> None:
        options = Options(runs=Path(settings.runs), stall_s=settings.stall_s)
        super().__init__([], "pytest", options, lambda _: None)
        self._folder = Path(settings.folder)
        self._settings = settings
        self._test: _Test | None = None
        self._kept = set[World]()
        """Worlds whose records remain."""
        self._stacks: dict[World, Result] = {}

    def serve(self) -> None:
        """Serve pytest until its process ends."""
        settings = self._settings
        end = os.pidfd_open(settings.pid)
        notes = socket.socket(fileno=settings.notes)
        with socket.socket(fileno=settings.channel) as channel:
            while end not in (ready := self._wait(end, notes, channel)):
                self._poll(notes, ready)
                if channel.fileno() in ready and not self._answer(channel, notes):
                    break
                self._watch_test()
            self._poll(notes, self._wait(end, notes))
            if self._test is not None and end in ready:  # pytest was killed, so nothing has asked for the verdict
                self._kept.update(world for world in self._test.active if world.world_size > 1)
            self._processes.report_ends(last=True)
        for world in self.worlds:
            self._release(world)

    # -- messages of pytest

    def _answer(self, channel: socket.socket, notes: socket.socket) -> bool:
        """Handle a message; return False if it was the last one."""
        data = channel.recv(LONGEST_MESSAGE)
        message = json.loads(data or '{"kind": "end"}')
        kind, test = message["kind"], self._test
        if kind == "begin":
            self._test = _Test(message["name"])
            self._name = message["name"].rpartition("::")[2].partition("[")[0]
        elif kind == "finish":
            self._finish_test()
        elif kind == "debugger" and test is not None:
            test.is_paused = True
        elif kind == "failed":
            verdicts = self._explain(test, message, notes) if test is not None else []
            while len(data := json.dumps(verdicts).encode()) > LONGEST_MESSAGE:
                verdicts.pop()
            channel.send(data)
        return bool(kind != "end")

    def _finish_test(self) -> None:
        """Remove the records of worlds that ended and that no failed test showed."""
        self._test = None
        pid = self._settings.pid
        for world in self.worlds:
            if all(one.pid == pid or rank not in self._running(world) for rank, one in world.members.items()):
                self._release(world)
        self.worlds = [world for world in self.worlds if world.result is None and world.began]

    def _release(self, world: World) -> None:
        """Judge a world for good if its record remains; otherwise remove the record."""
        if world in self._kept:
            if world.result is None:
                world.conclude()
        else:
            world.writer.discard()
        world.began = 0.0

    # -- what processes report

    def _handle(self, message: Any) -> None:
        """Note when the worlds of the test are active; ignore those without a record."""
        if not isinstance(message, Joined) and not self._by_number[message.rank][0].began:
            return
        super()._handle(message)
        if self._test is not None and isinstance(message, (Joined, Trace)):
            self._test.active[self._by_number[message.rank][0]] = self._test.progressed = time.monotonic()
            self._test.cpu_s = None

    def _judge_early(self, ended: Sequence[World]) -> None:
        """Judge no world before its test has failed."""

    # -- verdicts

    def _explain(self, test: _Test, message: dict[str, Any], notes: socket.socket) -> list[Any]:
        """Return the verdicts on the worlds of a failed test: their titles, texts, and records."""
        until = time.monotonic() + (_PATIENCE_S if test.stalled is None else 0.0)
        while True:
            self._poll(notes, self._wait(notes))
            worlds = [world for world in test.active if world not in test.shown and world.began]
            pending = [world for world in worlds if self._others(world)]
            if not pending or time.monotonic() >= until:
                break
        for world in worlds:
            result = self._judge_world(world, test, message)
            if result is not None:
                test.shown[world] = result
        by_verdict = sorted(test.shown.items(), key=lambda one: one[1].passed)
        bad = [one for one in by_verdict if not one[1].passed]
        verdicts = [(f"lab: {test.note}", "", "")] if test.note else []
        for world, result in (bad or by_verdict[-1:])[:_MOST_SHOWN]:
            self._kept.add(world)
            text = clip_end(sanitize_text(verdict_text(result, Style(colour=False))), _LONGEST_VERDICT)
            verdicts.append((f"lab: world of {format_count(world.world_size, 'rank')}", text, str(world.writer.path)))
        return verdicts

    def _judge_world(self, world: World, test: _Test, message: dict[str, Any]) -> Result | None:
        """Return the verdict on a world of a failed test; None if its ranks still work."""
        if world.world_size == 1 and not (world.members[0].pid != self._settings.pid if 0 in world.members else True):
            return None
        running = self._running(world)
        if not running:
            return world.conclude()
        others = [*self._ended_parts(running, test, message)]
        waiting = {rank: one for rank, one in running.items() if all(rank != part.rank for part in others)}
        if waiting and world.waits:
            return world.examine(waiting, time.monotonic() - world.progressed, others, idle=True)
        return world.judge_now(others) if others else None

    def _ended_parts(self, running: dict[int, JoinedProcess], test: _Test, message: dict[str, Any]) -> Iterator[Exited]:
        """Yield the errors of ranks whose processes live on: pytest itself, and those of a pool."""
        for rank, process in running.items():
            raised = process.raised
            if process.pid == self._settings.pid and message.get("error"):
                now = time.time()
                yield Exited(rank, now, code=1, error=message["error"], traceback=message["traceback"], raised=now)
            elif raised is not None and raised.time >= test.began_unix:
                yield process.describe_exit(raised.time, 1, 0)._replace(rank=rank)

    # -- tests that stand still

    def _watch_test(self) -> None:
        test, limit = self._test, self._options.stall_s
        if test is None or test.is_paused or not limit:
            return
        now = time.monotonic()
        if test.cpu_s is None:
            test.cpu_s = _cpu_s([self._settings.pid])
        if test.stalled is not None:
            self._end_test(test, now - test.stalled)
            return
        due = [world for world in self.worlds if now - max(world.progressed, test.began) >= limit and world.is_running]
        for world in due:
            if world.world_size > 1 and world not in test.shown and self._stands_still(world, test, now):
                result = world.examine(
                    self._running(world), limit, self._ended_parts(self._running(world), test, {}), idle=True
                )
                if result is not None:
                    test.shown[world], test.stalled = result, now
        if test.stalled is None and now - test.progressed >= limit and not self._is_computing(test, now):
            self._find_silent_processes(test, now)

    def _stands_still(self, world: World, test: _Test, now: float) -> bool:
        """Return whether the ranks of a world keep the test from going on."""
        is_active = world in test.active
        if world.waits:
            return is_active or not self._is_computing(test, now)
        return is_active and now - test.progressed >= self._options.stall_s and not self._is_computing(test, now)

    def _is_computing(self, test: _Test, now: float) -> bool:
        """Return whether pytest itself has computed since something happened last."""
        used = _cpu_s([self._settings.pid]) - (test.cpu_s or 0.0)
        return used >= _COMPUTES * (now - test.progressed)

    def _find_silent_processes(self, test: _Test, now: float) -> None:
        """End the test if its processes loaded PyTorch and wait, and none of them, nor pytest, computes."""
        pids = [pid for pid in self._started(test) if "libtorch" in _read(f"/proc/{pid}/maps")]
        if len(pids) < 2:
            return
        tree = [self._settings.pid, *processes.list_descendants(self._settings.pid)]
        first = _cpu_s(tree)
        time.sleep(_PATIENCE_S)
        if _cpu_s(tree) - first > _IDLE * _PATIENCE_S * len(tree):
            test.progressed = now  # look again after the limit
            return
        limit = format_duration(self._options.stall_s)
        test.note = (
            f"{format_count(len(pids), 'process')} of the test did nothing for {limit} and joined no process group"
        )
        test.stalled = now

    def _end_test(self, test: _Test, after_s: float) -> None:
        """Take the next steps to end the test: its ranks, then what else it started, then pytest's main thread."""
        own = [world for world in test.shown if world.is_running]
        if test.steps == 0 and all(one.pid == self._settings.pid for world in own for one in world.members.values()):
            test.steps = 2  # there is nobody else
        while test.steps < len(_STEPS) and after_s >= _STEPS[test.steps][0]:
            _, whom, number = _STEPS[test.steps]
            test.steps += 1
            if whom == "ranks":
                for world in own:
                    world.was_stopped = True
                    for process in self._others(world):
                        process.stopped = True
                        with suppress(OSError):
                            signal.pidfd_send_signal(process.pidfd, number)
            for pid in [self._settings.pid] if whom == "pytest" else self._started(test) if whom == "started" else ():
                with suppress(OSError):
                    os.kill(pid, number)
        if after_s >= _STEPS[-1][0] + _INTERRUPT_AGAIN_S:  # what it does to end takes too long as well
            test.steps, test.stalled = 2, time.monotonic() - 1.0

    def _others(self, world: World) -> list[JoinedProcess]:
        """Return the running processes of a world, except pytest."""
        return [one for one in self._running(world).values() if one.pid != self._settings.pid]

    def _started(self, test: _Test) -> list[int]:
        """Return the processes below pytest that began during the test, except those that later tests use too."""
        pids = processes.list_descendants(self._settings.pid)
        new = [pid for pid in pids if pid != self._settings.pid and started_at(pid) >= test.began_unix - 0.02]
        return [pid for pid in new if not self._is_shared(pid)]

    def _is_shared(self, pid: int) -> bool:
        is_child = processes.parent_of(pid) == self._settings.pid
        return is_child and any(word in _read(f"/proc/{pid}/cmdline") for word in _SHARED)


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def _cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used."""
    ticks = 0
    for pid in pids:
        words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        ticks += sum(map(int, words[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main(settings: str) -> None:
    """Serve the pytest process that started this one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    SessionSupervisor(Settings(**json.loads(settings))).serve()
