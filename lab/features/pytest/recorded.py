"""`pytest --lab`: record the worlds of ranks that tests form, and show the verdicts in the reports of failed tests.

A process next to pytest does the work, see `lab.features.recording.session`. It gets messages in JSON.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lab.features.pytest.stash import RECORD, SUMMARY_LINES
from lab.features.recording import environment as recording
from lab.features.recording.environment import INTERRUPT, INTERRUPT_WAIT, LONGEST_MESSAGE, start_python
from lab.node.messages.agent import Leaving
from lab.node.rank.note import send_statement
from lab.node.statement import SOCKET_VARIABLE, bind_notes
from lab.record.layout import RUNS

_ANSWER_S = 30.0
_FRAMES = 8
"""Innermost frames among which one shows that pytest waits for a process."""
_WAITING = ("multiprocessing", "concurrent/futures")
_NO_CAUSE = re.compile(r"exit(?:ed|code| code| status)|returncode|\A[\w.]+: *$", re.IGNORECASE | re.MULTILINE)
"""Errors whose first line is empty, as that of mp.spawn, or that only say how a process ended."""


def record_tests(config: pytest.Config, stall_s: float) -> None:
    """Record the tests of this process, unless it is the controller of pytest-xdist, whose workers run them."""
    options = config.known_args_namespace
    distributes = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    if not distributes or "PYTEST_XDIST_WORKER" in os.environ:
        lines = config.stash.setdefault(SUMMARY_LINES, [])
        runs = Path(config.invocation_params.dir, options.lab_report or RUNS)
        config.pluginmanager.register(_RecordedTests(config.rootpath, runs, stall_s, lines), "lab_recorded_tests")


class _RecordedTests:
    """The recorded tests of this process.

    Args:
        folder: folder of the tests.
        runs: folder of the records.
        stall_s: seconds without progress after which a test is ended; 0: never.
        lines: for the end of the session.
    """

    def __init__(self, folder: Path, runs: Path, stall_s: float, lines: list[str]) -> None:
        self._lines = lines
        package = recording.install_package()
        self._socket = recording.socket_path(package)
        self._before = dict(os.environ)
        self._pid = os.getpid()
        self._test = ""
        """The running test."""
        self._records = list[str]()
        """Records of its worlds that its report names."""
        self._in_test = False
        """Whether its code runs, and not pytest's."""
        self._has_failed = False
        """Whether a world of this session failed."""
        self._stall_s = stall_s
        self._threads_ended = False
        """Whether threads that are ranks had to end."""
        self._is_terminated = False
        """Whether this process received SIGTERM during a test."""
        self._is_guarded = False
        """Whether a thread can close its connections."""
        self._abort = os.pipe()
        if SOCKET_VARIABLE in self._before:  # have `lab record` leave the report to this
            with suppress(OSError):
                send_statement(self._before[SOCKET_VARIABLE], Leaving(-1, time.time()))
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_ANSWER_S)
        environment = recording.recorded_environment(package, folder, None, self._socket)
        with bind_notes(str(self._socket)) as notes, other:
            folders = str(folder), str(self._socket.with_suffix("")), str(runs)
            _start_supervisor((notes.fileno(), other.fileno(), self._abort[1]), *folders, stall_s)
        os.environ.update(environment)
        sys.path.append(str(package))  # as the `sitecustomize` of other processes does
        joining: Any = import_module("labnode.node.rank.joining")
        joining.prepare_process(str(folder), None, str(self._socket), started=True, moves=True)
        self._errors: Any = import_module("labnode.features.recording.on_node.worlds")
        self._journal: Any = import_module("labnode.node.recorder.journal").journal
        patching: Any = import_module("labnode.node.recorder.patching")
        guard = partial(self._guard_connections, patching=patching)
        patching.when_imported("torch.distributed.distributed_c10d", guard)
        if threading.current_thread() is threading.main_thread():
            signal.signal(INTERRUPT, self._interrupt)
            signal.signal(INTERRUPT_WAIT, self._interrupt)

    def _send(self, kind: str, **facts: Any) -> bool:
        """Send a message; return False if nobody receives it."""
        if os.getpid() != self._pid:
            return False
        try:
            self._channel.send(json.dumps({"kind": kind, **facts}).encode()[:LONGEST_MESSAGE])
        except OSError:  # it failed; the tests go on
            self._report_loss()
            return False
        return True

    def _report_loss(self) -> None:
        """Report at the end of the session that nobody recorded its last tests."""
        self._lines.append("recording of tests failed: later tests have no verdicts, and none that hangs is ended")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """End the running test."""
        if not self._in_test or os.getpid() != self._pid:
            return
        innermost = [one.f_code.co_filename for one, _ in islice(traceback.walk_stack(frame), _FRAMES)]
        if number == INTERRUPT and not self._threads_ended and _end_threads(self._journal.threads):
            self._threads_ended = True  # if they do not end, the next signal comes soon
            return
        if number == INTERRUPT or any(f"/{name}/" in file for file in innermost for name in _WAITING):
            why = "pytest received SIGTERM" if self._is_terminated else "it had stopped making progress"
            raise pytest.fail.Exception(f"the lab ended this test: {why}")

    def end_test(self) -> bool:
        """Have the running test ended, with the verdicts on its worlds so far; return False if none runs.

        pytest may be reporting how it failed.
        """
        self._is_terminated = bool(self._test) and self._send("terminate")
        return self._is_terminated

    def _guard_connections(self, module: Any, patching: Any) -> None:
        """Have a thread close connections of the test if this process waits in one; pytest calls no Python then.

        It is no thread of `threading`, because tests may count those.
        """

        def begin(*_: Any, **__: Any) -> None:
            if os.getpid() == self._pid and self._test and not self._is_guarded:
                self._is_guarded = True
                _thread.start_new_thread(self._close_connections, (set(_connections()),))
                self._report_signals(self._channel.fileno())

        patching.replace_function(module, "init_process_group", patching.call_before(begin))

    def _report_signals(self, descriptor: int) -> None:
        """Have the supervisor notice SIGTERM even if this process waits in a call of PyTorch; -1: no more."""
        if threading.current_thread() is threading.main_thread():
            before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
            if before not in (-1, self._channel.fileno()):  # that of the test
                signal.set_wakeup_fd(before)

    def _close_connections(self, before: set[str]) -> None:
        """Wait for a byte of the supervisor, then shut down connections that did not exist before; end at any other."""
        while os.read(self._abort[0], 1) == b"+":
            for name, fd in _connections().items():
                with suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
                    is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
                    is_listener = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)  # gloo would abort
                    if name not in before and is_tcp and connection.type == socket.SOCK_STREAM and not is_listener:
                        connection.shutdown(socket.SHUT_RDWR)
        self._is_guarded = False

    # -- hooks of pytest

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report that a test begins."""
        self._test, self._records = nodeid, []
        self._send("begin", name=nodeid[-1000:])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Note while code of the test runs."""
        self._in_test = True
        try:
            return (yield)
        finally:
            self._in_test = False

    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """Report an error of the test if this process is a rank, or a fork of it is (pytest-forked)."""
        if call.excinfo is not None and not isinstance(call.excinfo.value, (pytest.skip.Exception, KeyboardInterrupt)):
            self._errors.report_error(call.excinfo.value)

    @pytest.hookimpl(specname="pytest_runtest_makereport")
    def pytest_lab_hide_frames(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Shorten the traceback of an error that only says how a process ended; unittest has set the error by now."""
        if call.excinfo is not None and not item.config.getoption("fulltrace"):
            from lab.features.pytest.items import hide_last_frames

            call.excinfo = hide_last_frames(call.excinfo.value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the verdicts on the worlds of a failed test to its report."""
        report.user_properties += [(RECORD, one) for one in self._records]  # JUnit reads those of the teardown
        if not report.failed or report.nodeid != self._test or not self._send("failed"):
            return
        longrepr: Any = report.longrepr
        try:
            verdicts = json.loads(self._channel.recv(LONGEST_MESSAGE))
        except (OSError, ValueError):  # the supervisor has ended
            self._report_loss()
            self._channel.close()
            return
        self._has_failed = self._has_failed or bool(verdicts)
        crash: Any = getattr(longrepr, "reprcrash", None)
        for title, verdict, record, stopped, reason, annotation in verdicts:
            if crash is not None and (stopped or _NO_CAUSE.search(crash.message)):
                crash.message, crash = reason, None  # the first one
            if hasattr(longrepr, "addsection"):  # JUnit files contain it too
                longrepr.addsection(title, verdict)
            else:
                report.longrepr = f"{report.longrepr}\n{title}\n{verdict}"
            if record and record not in self._records:
                report.user_properties.append((RECORD, record))
                self._records.append(record)
            self._lines += annotation.splitlines()

    def pytest_runtest_logfinish(self) -> None:
        """Report that a test ended."""
        self._test = ""
        if self._threads_ended and _forget_threads(self._journal.threads):
            vars(threading)["_shutdown"] = lambda: None  # at its end, Python would wait for that thread
        self._threads_ended = False
        distributed: Any = sys.modules.get("torch.distributed")
        is_shared = distributed is not None and distributed.is_initialized()  # later tests use the group, too
        if self._is_guarded and not is_shared:
            self._report_signals(-1)
            os.write(self._abort[1], b".")
        self._send("finish")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, object, object]:
        """Watch the end of the session as if it were a test: a pool that lost a worker may never end."""
        if self._has_failed:
            _limit_exit(int(exitstatus), self._stall_s)
        self.pytest_runtest_logstart("end of the session")
        self._in_test = True
        try:
            return (yield)
        except pytest.fail.Exception:
            self._lines.append("the end of the session made no progress; the rest of it was left out")
            return None
        finally:
            self._in_test = False
            self.pytest_runtest_logfinish()

    def pytest_enter_pdb(self) -> None:
        """Report that the test waits for its user."""
        self._send("debugger")

    def pytest_unconfigure(self) -> None:
        """Stop recording."""
        self._send("end")
        self._channel.close()
        self._socket.unlink(missing_ok=True)
        for name in {"PYTHONPATH", SOCKET_VARIABLE, *os.environ.keys() - self._before.keys()} & os.environ.keys():
            if name.startswith("LAB_") or name == "PYTHONPATH":
                os.environ.pop(name)
                os.environ.update({name: self._before[name]} if name in self._before else {})


def _limit_exit(code: int, limit_s: float) -> None:
    """Exit at the latest `limit_s` after Python began to: a pool whose worker was killed can block it forever."""
    begins = _thread.allocate_lock()
    begins.acquire()

    def exit_late() -> None:
        begins.acquire()
        time.sleep(limit_s)
        for process in multiprocessing.active_children():
            process.kill()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

    if limit_s:
        _thread.start_new_thread(exit_late, ())
        atexit.register(begins.release)


class RankEnded(Exception):
    """Ends a thread that is a rank."""


def _end_threads(idents: Mapping[int, Any]) -> bool:
    """End threads that are ranks, as far as they return to Python; return whether there are any."""
    groups: Any = sys.modules.get("torch.testing._internal.distributed.multi_threaded_pg")
    for ident in [*idents]:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(RankEnded))
    if idents and groups is not None:
        groups.ProcessLocalGroup.exception_handle(RankEnded())  # others wait for them in Python
    return bool(idents)


def _forget_threads(idents: dict[int, Any]) -> bool:
    """Have the next test use new threads; return whether one did not end."""
    groups: Any = sys.modules.get("torch.testing._internal.distributed.multi_threaded_pg")
    cases: Any = sys.modules.get("torch.testing._internal.common_distributed")
    if groups is not None and cases is not None:
        groups.ProcessLocalGroup.reset()
        while not cases.MultiThreadedTestCase.exception_queue.empty():
            cases.MultiThreadedTestCase.exception_queue.get()
    left = bool(idents.keys() & {thread.ident for thread in threading.enumerate()})
    idents.clear()
    return left


def _connections() -> dict[str, int]:
    """Return the descriptors of the sockets of this process, by name."""
    sockets = dict[str, int]()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            sockets[os.readlink(f"/proc/self/fd/{name}")] = int(name)
    return {name: fd for name, fd in sockets.items() if name.startswith("socket:")}


def _start_supervisor(descriptors: tuple[int, int, int], *facts: str | float) -> None:
    """Start the process that reads the statements of recorded processes; it is no child of this one."""
    arguments = os.getpid(), *facts, *descriptors
    then = f"from lab.features.recording.session import main; main(*{arguments!r})"
    program = f"import os; os.fork() and os._exit(0); {then}"
    start_python(program, stdin=subprocess.DEVNULL, pass_fds=descriptors).wait()
