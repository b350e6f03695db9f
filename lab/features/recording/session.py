"""Record the worlds of a pytest session test by test, in a process next to pytest, and end tests that stand still.

pytest sends messages about its tests and asks for the verdicts of those that failed. This process is no child of
pytest, so tests that wait for any child or count their children do not notice it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.features.recording.environment import INTERRUPT, INTERRUPT_WAIT, LONGEST_MESSAGE
from lab.features.recording.supervisor import Supervisor
from lab.features.recording.world import PATIENCE, World, read_text, started_at, waits_for_task
from lab.node import processes
from lab.node.files import remove_tree
from lab.node.messages.agent import Exited, Joined, Trace
from lab.node.rank_process import JoinedProcess
from lab.words import clip_end, format_count, format_duration

if TYPE_CHECKING:
    from lab.record.result import Result

_LONGEST_VERDICT = 12_000
_LONGEST_NAME = 100
_MOST_SHOWN = 4
"""Verdicts in the report of one test."""
_PATIENCE_S = 0.4
"""Time in which the ranks of a failed test may still end by themselves."""
_COMPUTES = 0.5
"""Share of the time in which pytest uses a core, from which on it computes."""
_IDLE = 0.02
_STEPS = ((0.0, "ranks", signal.SIGTERM), (0.8, "ranks", signal.SIGKILL), (1.0, "started", signal.SIGTERM),
          (1.5, "started", signal.SIGKILL), (1.8, "pytest", INTERRUPT))  # fmt: skip
"""How a test is ended: seconds after its standstill was diagnosed, which processes get a signal, and which one."""
_STEPS_OF_POOL = (*_STEPS[:2], (1.0, "pytest", INTERRUPT), (1.6, "started", signal.SIGTERM))
"""The same for ranks of which some wait for their next task; a pool can break if such a process is killed."""
_SHUT_DOWN_S, _AGAIN_S = 0.6, 1.2
"""Time after the interrupt until the connections of pytest are closed, because it does not return to Python, and until
all of this begins again, because the test waits at its end, too."""
_TEARDOWN_S = 3.0
"""Time for the end of such a test before all of this begins again."""
_TIME = re.compile(rb'"t":(\d+)')
KEEP_VARIABLE = "LAB_KEEP_RECORDS"
"""If it is set, the records of tests that pass remain, too."""
_NODES = "labnode.node.local_nodes"
_SHARED = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch_shm_manager", "lab.features.pytest",
           _NODES)  # fmt: skip
"""Words in the command lines of children of pytest that later tests use too; runs on nodes have their own limits."""


class _Test:
    """The running test."""

    def __init__(self) -> None:
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
        self.spared = set[int]()
        """Processes of ranks that wait for their next task."""
        self.is_paused = False
        """Whether its user is in a debugger."""
        self.progressed = self.began
        """When something happened last."""
        self.cpu_s: float | None = None
        """Processor time of pytest at that moment."""


class SessionSupervisor(Supervisor):
    """The worlds of the tests of one pytest process.

    Args:
        pid: process of pytest.
        folder: folder of the tests.
        work: folder of the records at first, where no test looks for files that it left.
        runs: folder of the records that remain.
        stall_s: seconds without progress after which a test is ended; 0: never.
        descriptors: of the sockets for statements of recorded processes and for messages of pytest, and of a pipe;
            pytest closes connections of the test when this writes to it.
    """

    def __init__(self, pid: int, folder: str, work: str, runs: str, stall_s: float, *descriptors: int) -> None:
        super().__init__("pytest", Path(work), Path(folder), stall_s, lambda _: None)
        self._pid, self._kept_in, (self._notes, self._channel, self._abort) = pid, Path(runs), descriptors
        self._test: _Test | None = None
        self._kept = set[World]()
        """Worlds whose records remain."""

    def serve(self) -> None:
        """Serve pytest until its process ends."""
        end, notes = os.pidfd_open(self._pid), socket.socket(fileno=self._notes)
        with socket.socket(fileno=self._channel) as channel:
            while end not in (ready := self._wait(end, notes, channel)):
                if not self._answer_all(channel, notes):
                    break
                self._poll(notes, ready)
                self._watch_test()
            self._poll(notes, self._wait(end, notes))
            if self._test is not None and end in ready:  # pytest was killed, so nothing has asked for the verdict
                self._kept.update(world for world in self._test.active if world.world_size > 1)
            self._processes.report_ends(last=True)
        for world in self.worlds:
            self._release(world)
        remove_tree(self._runs)

    # -- messages of pytest

    def _answer_all(self, channel: socket.socket, notes: socket.socket) -> bool:
        """Handle messages before those of ranks, which belong to the test that just began; return False at the end."""
        with suppress(BlockingIOError):
            while self._answer(channel, notes):
                pass
            return False
        return True

    def _answer(self, channel: socket.socket, notes: socket.socket) -> bool:
        """Handle a message; return False if it was the last one."""
        data = channel.recv(LONGEST_MESSAGE, socket.MSG_DONTWAIT)
        if len(data) == 1:  # a signal, see `set_wakeup_fd`
            data = b'{"kind": "terminate"}' if data[0] == signal.SIGTERM else b'{"kind": "signal"}'
        message = json.loads(data or '{"kind": "end"}')
        kind, test = message["kind"], self._test
        if kind == "begin":
            self._test = _Test()
            test_id, bracket, values = message["name"].partition("[")
            self._name = clip_end(f"{test_id.rpartition('::')[2]}{bracket}{values}", _LONGEST_NAME)
        elif kind == "finish":
            self._finish_test()
        elif kind == "debugger" and test is not None:
            test.is_paused = True
        elif kind == "terminate" and test is not None and test.stalled is None:
            for world in [one for one in test.active if one.is_running and one.world_size > 1]:
                self._examine(world, test, time.monotonic() - world.progressed)
            if test.stalled is None:
                test.note, test.stalled = "pytest received SIGTERM", time.monotonic()
        elif kind == "failed":
            verdicts = self._explain(test, notes) if test is not None else []
            while len(data := json.dumps(verdicts).encode()) > LONGEST_MESSAGE:
                verdicts.pop()
            channel.send(data)
        return bool(kind != "end")

    def _finish_test(self) -> None:
        """Remove the records of worlds that ended and that no failed test showed."""
        self._test = None
        for world in self.worlds:
            if not self._running(world):
                self._release(world)
        self.worlds = [world for world in self.worlds if world.result is None and world.began]

    def _release(self, world: World) -> None:
        """Judge a world for good if its record remains; otherwise remove the record."""
        if world not in self._kept and not os.environ.get(KEEP_VARIABLE):
            world.writer.discard()
        elif world.result is None:
            self._publish(world)
            world.conclude()
        world.began = 0.0

    def _publish(self, world: World) -> None:
        """Move the record of a world to where it can remain, before its verdict names it."""
        if world.writer.path.parent == self._runs:
            world.writer.move(self._kept_in)

    # -- what processes report

    def _handle(self, message: Any) -> None:
        """Note when the worlds of the test are active; ignore those without a record."""
        if not isinstance(message, Joined) and not self._by_number[message.rank][0].began:
            return
        test = self._test
        if isinstance(message, Exited) and message.code == 0 and test and (message.raised or 0) >= test.began_unix:
            message = message._replace(code=1)  # a pool or pytest caught its error
        super()._handle(message)
        world = self._by_number[message.rank][0]
        if test and (isinstance(message, Joined) or (isinstance(message, Trace) and _is_after(message, test.began))):
            test.active[world] = test.progressed = world.progressed
            if not world.failed_before(test.began_unix):
                world.name = self._name  # processes of a pool work for one test after the other
            test.cpu_s = None

    def _judge_early(self) -> None:
        """Judge no world before its test has failed."""

    # -- verdicts

    def _explain(self, test: _Test, notes: socket.socket) -> list[Any]:
        """Return the verdicts on the worlds of a failed test.

        Of each: title, text, record, whether the test was ended, reason, and annotation.
        """
        from lab.features.recording.verb import annotations_text, failed_test_text
        from lab.report.sanitize import sanitize_plain, sanitize_text

        until = time.monotonic() + (_PATIENCE_S if test.stalled is None else 0.0)
        while True:
            self._poll(notes, self._wait(notes))
            worlds = [world for world in test.active if world not in test.shown and world.began]
            if not [world for world in worlds if self._others(world)] or time.monotonic() >= until:
                break
        for world in worlds:
            self._publish(world)
            if (result := self._judge_world(world, test)) is not None:
                test.shown[world] = result
        by_verdict = sorted(test.shown.items(), key=lambda one: one[1].passed)
        bad = [one for one in by_verdict if not one[1].passed]
        if stopped := test.stalled is not None:  # its end may take a while, too
            test.steps, test.stalled = 2, time.monotonic() + _TEARDOWN_S
        verdicts = [("lab: no progress", test.note, "", True, test.note, "")] if test.note else []
        for world, result in (bad or by_verdict[-1:])[:_MOST_SHOWN]:
            self._kept.add(world)
            text = clip_end(sanitize_text(failed_test_text(result)), _LONGEST_VERDICT)
            when = " that failed in an earlier test" if world.failed_before(test.began_unix) else ""
            title = f"lab: world of {format_count(world.world_size, 'rank')}{when}"
            texts = sanitize_plain(result.reason), annotations_text([result], self._folder)
            verdicts.append((title, text, str(world.writer.path), stopped, *texts))
        return verdicts

    def _judge_world(self, world: World, test: _Test) -> Result | None:
        """Return the verdict on a world of a failed test; None if its ranks still work."""
        if world.world_size == 1 and any(one.pid == self._pid for one in world.members.values()):
            return None  # the test itself shows how it failed
        if world.stopped_at:
            test.note = "its ranks were ended in an earlier test, which stood still"
            return None
        if not self._running(world):
            return world.conclude()
        ended, others = self._split_ranks(world, test.began)
        if others and world.waits:
            return world.examine(others, time.monotonic() - world.progressed, ended, idle=True)
        return world.judge_now(ended) if ended else None

    # -- tests that stand still

    def _watch_test(self) -> None:
        test, limit = self._test, self._stall_s
        if test is None or test.is_paused or not (limit or test.stalled):
            return
        now = time.monotonic()
        if test.cpu_s is None:
            test.cpu_s = processes.read_cpu_s([self._pid])
        if test.stalled is not None:
            self._end_test(test, now - test.stalled)
            return
        still = [one for one in self.worlds if one.is_running and self._stands_still(one, test, now)]
        for world in still:
            self._examine(world, test, limit)
        if not still and now - test.progressed >= limit and not self._is_computing(test, now):
            self._find_silent_processes(test, now)

    def _examine(self, world: World, test: _Test, silent_s: float) -> None:
        """Judge the ranks of a world where they are now, and begin to end the test."""
        ended, others = self._split_ranks(world, test.began)
        self._publish(world)
        if (result := world.examine(others, silent_s, ended, idle=True)) is not None:
            test.shown[world], test.stalled = result, time.monotonic()
            running = self._running(world).items()
            test.spared |= {one.pid for rank, one in running if rank not in others or waits_for_task(one)}

    def _stands_still(self, world: World, test: _Test, now: float) -> bool:
        """Return whether the ranks of a world keep the test from going on."""
        limit, silent_s = self._stall_s, now - max(world.progressed, test.began)
        is_known = world.world_size == 1 or world in test.shown or world.stopped_at
        if silent_s < limit or is_known or world not in test.active:
            return False
        if world.waits or now - test.progressed < limit or self._is_computing(test, now):
            return world.waits
        return silent_s >= PATIENCE * limit or self._is_idle()

    def _is_computing(self, test: _Test, now: float) -> bool:
        """Return whether pytest itself has computed since something happened last."""
        return (processes.read_cpu_s([self._pid]) - (test.cpu_s or 0.0)) >= _COMPUTES * (now - test.progressed)

    def _is_idle(self) -> bool:
        """Return whether no process of the test computes, or waits for a core or a disk."""
        tree = [self._pid, *processes.list_descendants(self._pid)]
        first = processes.read_used_s(self._pid)
        time.sleep(_PATIENCE_S)
        waits = any(processes.read_stat(one)[:1] in ([b"D"], [b"R"]) for one in tree)  # waits count when they end
        return not waits and processes.read_used_s(tree[0]) - first <= _IDLE * _PATIENCE_S * len(tree)

    def _find_silent_processes(self, test: _Test, now: float) -> None:
        """End the test if its processes loaded PyTorch and wait, and none of them, nor pytest, computes."""
        test.progressed, is_idle = now, self._is_idle()  # look again after the limit
        if not is_idle:
            return
        pids = [pid for pid in self._started(test) if "libtorch" in read_text(f"/proc/{pid}/maps")]
        limit = format_duration(self._stall_s)
        if len(pids) >= 2:
            who = format_count(len(pids), "process", "processes")
            test.note, test.stalled = f"{who} of the test did nothing for {limit} and joined no process group", now
        elif self._unshared():
            os.kill(self._pid, INTERRUPT_WAIT)  # has an effect only if pytest waits for a process

    def _end_test(self, test: _Test, after_s: float) -> None:
        """Take the next steps to end the test: its ranks, then what else it started, then pytest's main thread."""
        own = [world for world in test.shown if world.is_running]
        steps = _STEPS_OF_POOL if test.spared else _STEPS
        if test.steps == 0 and own and not test.spared and not any(self._others(world) for world in own):
            test.steps = len(_STEPS) - 1  # there is nobody else
            test.stalled = (test.stalled or 0.0) - _STEPS[-1][0]
        while test.steps < len(steps) and after_s >= steps[test.steps][0]:
            _, whom, number = steps[test.steps]
            test.steps += 1
            for world in own if whom == "ranks" else ():
                world.stop((one for one in self._others(world) if one.pid not in test.spared), number)
            targets = {"pytest": [self._pid], "started": self._started(test) if whom == "started" else []}
            for pid in targets.get(whom, ()):
                with suppress(OSError):
                    os.kill(pid, number)
        if test.steps == len(steps) and after_s >= steps[-1][0] + _SHUT_DOWN_S:
            test.steps += 1
            os.write(self._abort, b"+")
        if after_s >= steps[-1][0] + _AGAIN_S:
            test.steps, test.stalled = 2, time.monotonic() - steps[2][0]

    def _others(self, world: World) -> list[JoinedProcess]:
        """Return the running processes of a world, except pytest."""
        return [one for one in self._running(world).values() if one.pid != self._pid]

    def _started(self, test: _Test) -> list[int]:
        """Return the processes below pytest that began during the test, except those that later tests use too."""
        return [pid for pid in self._unshared() if started_at(pid) >= test.began_unix - 0.02]

    def _unshared(self) -> list[int]:
        """Return the processes below pytest, except those that later tests use too."""
        commands = {pid: read_text(f"/proc/{pid}/cmdline") for pid in processes.children_of()(self._pid)}
        shared = {pid for pid, command in commands.items() if any(word in command for word in _SHARED)}
        shared.update(processes.list_descendants(*(pid for pid in shared if _NODES in commands[pid])))
        return [pid for pid in processes.list_descendants(self._pid) if pid not in shared]


def _is_after(trace: Trace, began: float) -> bool:
    """Return whether the last line of a trace is later than a monotonic time; those before a test may come late."""
    time_ns = _TIME.search(trace.data, max(trace.data.rfind(b"\n", 0, -1), 0))
    return time_ns is None or int(time_ns.group(1)) >= began * 1e9


def main(*arguments: Any) -> None:
    """Serve the pytest process that started this one; see `SessionSupervisor`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    SessionSupervisor(*arguments).serve()
