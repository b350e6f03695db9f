"""Processes that outlive the one that starts them: Python is not to warn that they do."""

from __future__ import annotations

import atexit
import subprocess

_there: list[subprocess.Popen[bytes]] = []


def may_outlive(process: subprocess.Popen[bytes]) -> None:
    """Nobody waits for the end of a process; if it ends before this one, that is taken note of."""
    if not _there:
        atexit.register(_let_go)
    _there[:] = [*(one for one in _there if one.poll() is None), process]


def _let_go() -> None:
    for process in _there:
        if process.poll() is None:
            process.returncode = 0  # else Python says that it still runs
    _there.clear()
