"""The end of a worker in which MPI was started: MPICH tells its launcher only when a process exits that all is well.

Otherwise `mpiexec` takes the end of a rank for a failure, and kills the others; which is right where it is one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from os import _exit  # as it is now: a script may put another one into `os`
from typing import NoReturn

_watched: list[int] = []
"""The process in which MPI may have been started."""


def watch() -> None:
    """Have what native code registers from MPI's import on done at exit, and nothing that was registered before.

    Handlers are called in the reverse order of their registration, and the first of those that are registered here ends
    the process: what torch would do takes 0.2 s, in a process that is about to vanish.
    """
    from ..recorder.imports import when_imported

    when_imported("mpi4py", lambda _: _register())


def _register() -> None:
    if _watched != [os.getpid()]:
        _watched[:] = [os.getpid()]
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)


def leave(code: int) -> NoReturn:
    """End this process."""
    if code == 0 and _watched == [os.getpid()]:
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()  # as mpi4py does at the end of an interpreter
        ctypes.PyDLL(None).exit(code)  # no other thread goes on meanwhile
    _exit(code)
