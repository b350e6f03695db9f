"""When MPI starts in this process, and how it ends there: nobody waits for a rank that has failed.

`MPI_Finalize` waits for every rank. A rank that ends by an error ends the others with it, as MPI programs in C do.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
from types import TracebackType
from typing import NoReturn, Protocol
from weakref import WeakSet

from torch_mpi.library import MPI


class Open(Protocol):
    """What is to be closed before MPI ends."""

    def shutdown(self) -> None:
        """Wait for what is under way, and let go of it."""


open_groups: WeakSet[Open] = WeakSet()
"""Groups that have not been destroyed."""


def start() -> MPI.Intracomm:
    """Start MPI unless it has been started, and return the communicator of all ranks.

    Raises:
        RuntimeError: this MPI cannot be called from several threads, has ended, or knows nothing of the other ranks, or
            of this process.
    """
    if MPI.Is_finalized():
        raise RuntimeError("mpi: MPI has ended in this process, and cannot be started again")
    if not MPI.Is_initialized():
        _check_own_start()
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError("mpi: MPI was started without MPI_THREAD_MULTIPLE, which this backend needs")
    world = MPI.COMM_WORLD
    expected = os.environ.get("WORLD_SIZE", "")
    if world.size == 1 and expected.isdecimal() and int(expected) > 1:
        raise RuntimeError(
            f"mpi: WORLD_SIZE is {expected}, but MPI has started this process alone: "
            f"start it with mpiexec -n {expected}"
        )
    _ending.watch()
    return world


def _check_own_start() -> None:
    """MPICH itself would end the process without a word that helps: the socket that mpiexec gave is not there."""
    number = os.environ.get("PMI_FD", "")
    try:
        known = not number.isdecimal() or stat.S_ISSOCK(os.fstat(int(number)).st_mode)
    except OSError:
        known = False
    if not known:
        raise RuntimeError("mpi: a rank started this process, and MPI knows only those that mpiexec starts")


class _Ending:
    """Knows how the process ends, and ends MPI accordingly."""

    def __init__(self) -> None:
        self._code = 0
        self._process = 0
        """The process that is watched; a fork of it has no MPI to end."""

    def watch(self) -> None:
        """From now on, notice what ends the process."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        print_error, leave = sys.excepthook, sys.exit

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._code = 130 if issubclass(kind, KeyboardInterrupt) else 1
            print_error(kind, error, trace)

        def exit(status: str | int | None = None, /) -> NoReturn:  # noqa: A001 - it takes the place of sys.exit
            self._code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
            leave(status)

        sys.excepthook, sys.exit = excepthook, exit
        atexit.register(self._end)

    def _end(self) -> None:
        if os.getpid() != self._process or not MPI.Is_initialized() or MPI.Is_finalized():
            return
        if self._code:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            MPI.COMM_WORLD.Abort(self._code)
        for group in list(open_groups):
            group.shutdown()
        MPI.Finalize()


_ending = _Ending()
