"""How long calls may take. MPI's own wait for ever, so that their end is asked for again and again instead."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch_mpi import adrift
from torch_mpi.library import MPI

DEFAULT = timedelta(minutes=30)
"""That of torch, for backends without one of their own."""
_TURNS = 200
"""So often somebody asks whether a call is done and gives the core away, before pauses begin."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 2e-5, 1e-3, 1.1


class TimeUp(Exception):
    """A call was not done in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")


class Limit:
    """How long each call of a group may take."""

    def __init__(self, timeout: timedelta | None) -> None:
        self.seconds = min((timeout or DEFAULT).total_seconds(), threading.TIMEOUT_MAX)

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Return when it is.

        Raises:
            TimeUp: the time was up before.
        """
        wait(is_done, self.seconds)


def wait(is_done: Callable[[], bool], seconds: float) -> None:
    """Return when it is.

    Raises:
        TimeUp: it was not within so many seconds.
    """
    for _ in range(_TURNS):
        if is_done():
            return
        os.sched_yield()
    end, pause_s = time.monotonic() + seconds, _FIRST_PAUSE_S
    while not is_done():
        if time.monotonic() > end:
            raise TimeUp(seconds)
        time.sleep(pause_s)
        pause_s = min(_GROWTH * pause_s, _LONGEST_PAUSE_S)


class Impatient:
    """A communicator whose calls give up: each begins MPI's call that does not wait, and waits for its end."""

    def __init__(self, comm: MPI.Intracomm, limit: Limit) -> None:
        self._comm, self._limit = comm, limit
        self.rank, self.size = int(comm.rank), int(comm.size)

    def __getattr__(self, name: str) -> Callable[..., None]:
        begin = getattr(self._comm, f"I{name.lower()}")

        def call(*arguments: Any) -> None:
            request = begin(*arguments)
            try:
                self._limit.wait(request.Test)
            except BaseException:
                adrift.keep(request, arguments)
                raise

        setattr(self, name, call)  # for the next time
        return call
