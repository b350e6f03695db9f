"""Processes that scripts started and that are there when all workers have ended: named before they are stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from . import processes
from .messages import agent as messages
from .messages import wire
from .messages.agent import LeftRunning
from .rank_process import Worker

_MOST = 16
_LONGEST_COMMAND = 200
_FORK = "(a fork of the worker)"
"""It has the words of the agent, from which the worker is forked."""
_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""They end by themselves, a moment after whom they serve."""
_PATIENCE_S = 0.1
_PAUSE_S = 0.005


def tell_of_left(
    workers: Collection[Worker], run: str, node: str, emit: Callable[[wire.Message], None], pids: Iterable[int]
) -> None:
    """Name those that do not end within a moment, where all workers have ended by themselves."""
    if any(worker.stopped or worker.status is None for worker in workers):
        return
    sessions = {worker.pid: worker.rank for worker in workers if worker.rank >= 0}
    there = {pid: command for pid in pids if (command := _command(pid)) and not any(map(command.count, _OF_PYTHON))}
    end = time.monotonic() + _PATIENCE_S
    while there and time.monotonic() < end:
        time.sleep(_PAUSE_S)
        there = {pid: command for pid, command in there.items() if _command(pid)}
    own = _command(os.getpid())
    for pid, words in [*there.items()][:_MOST]:
        rank, command = None, _FORK if words == own else words
        with suppress(OSError):
            rank = sessions.get(os.getsid(pid))
        emit(LeftRunning(time.time(), node, run, pid, rank, command[:_LONGEST_COMMAND]))


def _command(pid: int) -> str:
    """The words that a process was started with; empty of one that has ended."""
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read(1 << 14).rstrip(b"\0").split(b"\0")
        if words != [b""] and not processes.is_zombie(pid):
            return b" ".join(words).decode("utf-8", "replace")
    return ""


class Cleaning:
    """Says once a second that the agent is at it: whoever waits for the end of the run would give up.

    Args:
        run: name of the run.
        emit: sends a message to the lab.
    """

    def __init__(self, run: str, emit: Callable[[wire.Message], None]) -> None:
        self._run = run
        self._emit = emit
        self._told = 0.0

    def __call__(self) -> None:
        """Say it, unless it was just said."""
        now = time.monotonic()
        if now - self._told > 1.0:
            self._told = now
            self._emit(messages.Cleaning(self._run))
