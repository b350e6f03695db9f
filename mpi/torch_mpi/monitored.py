"""A barrier that knows who is missing: rank 0 hears from every other rank, and then lets all of them go on."""

from __future__ import annotations

import time
from datetime import timedelta

from torch.distributed import DistBackendError

from torch_mpi.library import MPI

_DEFAULT = timedelta(minutes=30)
_PAUSE_S = 0.0005


def barrier(comm: MPI.Intracomm, what: str, timeout: timedelta | None, *, wait_all_ranks: bool) -> None:
    """Return when all ranks have called it.

    Raises:
        DistBackendError: not all did in time. Rank 0 names the first who is missing, or with `wait_all_ranks` everyone;
            the other ranks only know that they were not let go.
    """
    limit = timeout or _DEFAULT
    end = time.monotonic() + limit.total_seconds()
    tag = comm.Get_attr(MPI.TAG_UB)  # which scripts hardly use
    assert isinstance(tag, int)
    if comm.rank != 0:
        comm.Send(b"", 0, tag)
        if not _within(end, {0: comm.Irecv(bytearray(), 0, tag)}):
            return
        raise DistBackendError(f"{what}: rank 0 did not let this rank go on within {limit.total_seconds():g} s")
    missing = _within(end, {rank: comm.Irecv(bytearray(), rank, tag) for rank in range(1, comm.size)})
    if missing:
        named = missing if wait_all_ranks else missing[:1]
        listed = f"rank{'s' * (len(named) > 1)} {', '.join(map(str, named))}"
        raise DistBackendError(f"{what}: {listed} did not call it within {limit.total_seconds():g} s")
    for rank in range(1, comm.size):
        comm.Send(b"", rank, tag)


def _within(end: float, requests: dict[int, MPI.Request]) -> list[int]:
    """The ranks from which nothing came by then."""
    waiting = dict(requests)
    while waiting:
        waiting = {rank: request for rank, request in waiting.items() if not request.Test()}
        if waiting and time.monotonic() > end:
            for request in waiting.values():
                request.Cancel()
                request.Free()
            break
        if waiting:
            time.sleep(_PAUSE_S)
    return sorted(waiting)
