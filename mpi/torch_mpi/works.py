"""Handles of calls: of collectives that are done or will be, and of messages."""

# ruff: noqa: D102 - methods that override PyTorch's are documented there

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.distributed import DistBackendError
from torch.futures import Future

from torch_mpi.buffers import as_bytes
from torch_mpi.library import MPI

FOR_EVER = timedelta(0)
"""What PyTorch passes where a wait has no limit."""
_LONGEST_PAUSE_S = 0.001


class _Handle(Work):
    """What all handles have in common."""

    def __init__(self, what: str, result: list[torch.Tensor]) -> None:
        super().__init__()
        self._what = what
        """The call, its group and its rank, for messages."""
        self._result = result
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._future: Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        raise NotImplementedError

    def is_completed(self) -> bool:
        raise NotImplementedError

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def _late(self, timeout: timedelta) -> Exception:
        late: Exception = DistBackendError(f"{self._what} was not done within {timeout.total_seconds():g} s")
        return late

    def _settle(self, future: Future[list[torch.Tensor]]) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)


class DoneWork(_Handle):
    """The handle of a collective that the caller has done itself."""

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        future: Future[list[torch.Tensor]] = Future()
        self._settle(future)
        return future


class QueuedWork(_Handle):
    """The handle of a collective that is done by the group's thread."""

    def __init__(self, what: str, result: list[torch.Tensor]) -> None:
        super().__init__(what, result)
        self._done = threading.Event()

    def fail(self, error: Exception) -> None:
        """Say that the call failed; `finish` follows."""
        self._error = error

    def finish(self) -> None:
        """Say that the call is over. Functions that wait for the future are called before this returns."""
        with self._lock:
            self._done.set()
            future = self._future
        if future is not None:
            self._settle(future)

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        if not self._done.wait(_seconds(timeout)):
            raise self._late(timeout)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def get_future(self) -> Future[list[torch.Tensor]]:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = future = Future()
            done = self._done.is_set()
        if done:
            self._settle(future)
        return future


class FromAny:
    """What receives a message from whichever rank it comes; like a request of MPI.

    It asks who has sent something and takes that. MPICH 5.0, given a receive from any rank between machines, waits for
    ever with the message at hand. A receive from one rank that is begun later may take a message before it.
    """

    def __init__(self, comm: MPI.Intracomm, room: torch.Tensor, tag: int) -> None:
        self._comm, self._room, self._tag = comm, room, tag

    def Wait(self, status: MPI.Status | None = None) -> bool:
        return self._take(self._comm.Mprobe(MPI.ANY_SOURCE, self._tag), status)

    def Test(self, status: MPI.Status | None = None) -> bool:
        message = self._comm.Improbe(MPI.ANY_SOURCE, self._tag)
        return message is not None and self._take(message, status)

    def _take(self, message: MPI.Message, status: MPI.Status | None) -> bool:
        message.Recv(as_bytes(self._room), status)
        return True


class MessageWork(_Handle):
    """The handle of a message that is being sent or received."""

    def __init__(
        self, what: str, tensor: torch.Tensor, request: MPI.Request | FromAny, arrived: Callable[[MPI.Status], None]
    ) -> None:
        super().__init__(what, [tensor])
        self._request = request
        self._arrived = arrived
        """Called once, when the message is there; raises what is wrong with it."""
        self._status = MPI.Status()
        self._done = False
        _let_go_of_arrived()

    def __del__(self) -> None:
        if not self._done:
            _adrift.append((self._request, self._arrived))

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        limit_s = _seconds(timeout)
        if limit_s is None:
            with self._lock:
                if not self._done:
                    self._complete(self._request.Wait)
        else:
            self._wait_until(time.monotonic() + limit_s, timeout)
        if self._error is not None:
            raise self._error
        return True

    def _wait_until(self, end: float, timeout: timedelta) -> None:
        pause_s = 1e-5
        while not self.is_completed():
            if time.monotonic() > end:
                raise self._late(timeout)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def is_completed(self) -> bool:
        if not self._done and self._lock.acquire(blocking=False):  # else another thread waits for it
            try:
                if not self._done:
                    self._complete(self._request.Test)
            finally:
                self._lock.release()
        return self._done

    def _complete(self, ask: Callable[[MPI.Status], bool]) -> None:
        try:
            if ask(self._status):
                self._arrived(self._status)
                self._done = True
        except Exception as error:
            self._error, self._done = DistBackendError(f"{self._what}: {reason_of(error)}"), True
            self._error.__cause__ = error

    def source_rank(self) -> int:
        self.wait()
        return int(self._status.Get_source())

    _source_rank = source_rank

    def get_future(self) -> Future[list[torch.Tensor]]:
        """A future, for which a thread of its own waits: MPI tells nobody by itself."""
        if self._future is None:
            self._future = Future()
            threading.Thread(target=self._wait_for_future, daemon=True, name="mpi-message").start()
        return self._future

    def _wait_for_future(self) -> None:
        try:
            self.wait()
        except DistBackendError:
            pass  # the future tells it
        if self._future is not None:
            self._settle(self._future)


_adrift: list[tuple[MPI.Request | FromAny, object]] = []
"""Messages under way that nobody waits for any more, with what keeps their memory, which MPI still reads or writes."""
_adrift_lock = threading.Lock()


def _let_go_of_arrived() -> None:
    if _adrift and _adrift_lock.acquire(blocking=False):
        try:
            for one in list(_adrift):
                if one[0].Test():
                    _adrift.remove(one)
        finally:
            _adrift_lock.release()


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, MPI.Exception):
        kind = MPI.Get_error_string(error.Get_error_class())
        detail = " ".join(error.Get_error_string().split())
        return kind if detail == kind else f"{kind} ({detail})"
    return str(error) or type(error).__name__


def _seconds(timeout: Any) -> float | None:
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else None
