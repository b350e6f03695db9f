"""`pytest --lab`: record the worlds of ranks that tests form, and show the verdicts in the reports of failed tests.

A process next to pytest does the work, see `lab.features.recording.session`. It gets messages in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lab.features.pytest.stash import RECORD
from lab.features.recording.package import (
    INTERRUPT,
    LONGEST_MESSAGE,
    install_package,
    recorded_environment,
    socket_path,
)
from lab.node.statement import SOCKET_VARIABLE, bind_notes
from lab.record.layout import RUNS

_ANSWER_S = 30.0
_OWN = str(Path(__file__).parents[3])


def record_tests(config: pytest.Config, stall_s: float) -> None:
    """Record the tests of this process, unless it is the controller of pytest-xdist, whose workers run them."""
    options = config.known_args_namespace
    distributes = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    if not distributes or "PYTEST_XDIST_WORKER" in os.environ:
        runs = Path(config.invocation_params.dir, options.lab_report or RUNS)
        config.pluginmanager.register(_RecordedTests(config.rootpath, runs, stall_s), "lab_recorded_tests")


class _RecordedTests:
    """The recorded tests of this process.

    Args:
        folder: folder of the tests.
        runs: folder of the records.
        stall_s: seconds without progress after which a test is ended; 0: never.
    """

    def __init__(self, folder: Path, runs: Path, stall_s: float) -> None:
        package = install_package()
        self._socket = socket_path(package)
        self._before = dict(os.environ)
        self._pid = os.getpid()
        self._test = ""
        """The running test."""
        self._in_test = False
        """Whether its code runs, and not pytest's."""
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_ANSWER_S)
        environment = recorded_environment(package, folder, None, self._socket)
        with bind_notes(str(self._socket)) as notes, other:
            _start_supervisor(notes.fileno(), other.fileno(), folder, runs, stall_s)
        os.environ.update(environment)
        sys.path.append(str(package))  # as the `sitecustomize` of other processes does
        joining: Any = import_module("labnode.node.rank.joining")
        joining.prepare_process(str(folder), None, str(self._socket), started=True, moves=True)
        if threading.current_thread() is threading.main_thread():
            signal.signal(INTERRUPT, self._interrupt)

    def _send(self, kind: str, **facts: Any) -> bool:
        """Send a message; return False if nobody receives it."""
        if os.getpid() != self._pid:
            return False
        try:
            self._channel.send(json.dumps({"kind": kind, **facts}).encode()[:LONGEST_MESSAGE])
        except OSError:  # it failed; the tests go on
            return False
        return True

    def _interrupt(self, *_: Any) -> None:
        """End the running test."""
        if self._in_test and os.getpid() == self._pid:
            raise pytest.fail.Exception("the lab ended this test because it stood still", pytrace=True)

    # -- hooks of pytest

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report that a test begins."""
        self._test = nodeid
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
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the verdicts on the worlds of a failed test to its report."""
        if not report.failed or report.nodeid != self._test:
            return
        longrepr: Any = report.longrepr
        crash = getattr(longrepr, "reprcrash", None)
        error, text = crash.message if crash is not None else str(longrepr), str(longrepr)
        if not self._send("failed", error=error[:4000], traceback=text[-8000:]):
            return
        verdicts = []
        with suppress(OSError, ValueError):
            verdicts = json.loads(self._channel.recv(LONGEST_MESSAGE))
        for title, verdict, record in verdicts:
            if hasattr(longrepr, "addsection"):  # JUnit files contain it too
                longrepr.addsection(title, verdict)
            else:
                report.longrepr = f"{report.longrepr}\n{title}\n{verdict}"
            if record:
                report.user_properties.append((RECORD, record))

    def pytest_runtest_logfinish(self) -> None:
        """Report that a test ended."""
        self._test = ""
        self._send("finish")

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


def _start_supervisor(notes: int, channel: int, folder: Path, runs: Path, stall_s: float) -> None:
    """Start the process that reads the statements of recorded processes; it is no child of this one."""
    settings = {"pid": os.getpid(), "folder": str(folder), "runs": str(runs), "stall_s": stall_s, "notes": notes}
    path = [_OWN, *map(os.path.abspath, sys.path)]
    program = (
        f"import os, sys; os.fork() and os._exit(0); sys.path[:] = {path!r}; "
        f"from lab.features.recording.session import main; main({json.dumps({**settings, 'channel': channel})!r})"
    )
    subprocess.run(
        [sys.executable, "-S", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(notes, channel),
        start_new_session=True,
        check=False,
    )
