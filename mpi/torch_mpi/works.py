"""Handles of calls: of collectives that are done or will be, and of messages."""

# ruff: noqa: D102 - methods that override PyTorch's are documented there

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.distributed import DistBackendError
from torch.futures import Future

from torch_mpi import adrift
from torch_mpi.buffers import as_bytes
from torch_mpi.library import MPI
from torch_mpi.limits import Limit, TimeUp, wait

FOR_EVER = timedelta(0)
"""What PyTorch passes where a wait has no limit of its own."""
_dropped: deque[object] = deque(maxlen=64)
"""Handles of small results that nothing of Python has any more."""
_SMALL_BYTES = 1024


class _Handle(Work):
    """What all handles have in common."""

    def __init__(self, what: str, result: list[torch.Tensor]) -> None:
        super().__init__()
        self._what = what
        """The call, its group and its rank, for messages."""
        self._result = result
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._over: Future[Exception | None] = Future()
        """Is set when the call is, to what was wrong with it."""
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

    def _failed(self, error: BaseException) -> Exception:
        failed: Exception = DistBackendError(f"{self._what}: {reason_of(error)}")
        failed.__cause__ = error
        return failed

    def _outcome(self, over: Future[Exception | None]) -> list[torch.Tensor]:
        """What a future gives that depends on `over`: torch's C++ (as DDP's) takes the error of such for an error.

        One that is given to `Future.set_exception` it takes for tensors, and crashes.
        """
        error = over.value()
        if error is not None:
            raise error
        return self._result


class DoneWork(_Handle):
    """The handle of a collective that the caller has done itself."""

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        future: Future[list[torch.Tensor]] = Future()
        future.set_result(self._result)
        return future


class QueuedWork(_Handle):
    """The handle of a collective that is done by the group's thread."""

    def __init__(self, what: str, result: list[torch.Tensor]) -> None:
        super().__init__(what, result)
        self._done = threading.Event()

    def __del__(self) -> None:
        """Stay for a while: torch's C++ may still have it, as DDP does under Join, and ask for its future."""
        if sum(tensor.nbytes for tensor in self._result) <= _SMALL_BYTES:
            _dropped.append(self)

    def fail(self, error: BaseException) -> None:
        """Say that the call failed; `finish` follows."""
        self._error = self._failed(error)

    def finish(self) -> None:
        """Say that the call is over. Functions that wait for the future are called before this returns."""
        with self._lock:
            self._done.set()
            is_asked = self._future is not None
        if is_asked:
            self._over.set_result(self._error)

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        seconds = _seconds(timeout)
        if not self._done.wait(seconds):
            raise self._failed(TimeUp(seconds or 0.0))
        if self._error is not None:
            raise self._error
        if self._future is not None:
            self._future.wait()  # DDP takes its value without waiting for it, after this
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def get_future(self) -> Future[list[torch.Tensor]]:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = future = self._over.then(self._outcome)
            done = self._done.is_set()
        if done:
            self._over.set_result(self._error)
        return future


class FromAny:
    """What receives a message from whichever rank it comes; like a request of MPI.

    It asks who has sent something and takes that. MPICH 5.0, given a receive from any rank between machines, waits for
    ever with the message at hand. A receive from one rank that is begun later may take a message before it.
    """

    def __init__(self, comm: MPI.Intracomm, room: torch.Tensor, tag: int) -> None:
        self._comm, self._room, self._tag = comm, room, tag

    def Test(self, status: MPI.Status | None = None) -> bool:
        message = self._comm.Improbe(MPI.ANY_SOURCE, self._tag)
        if message is None:
            return False
        message.Recv(as_bytes(self._room), status)
        return True


class MessageWork(_Handle):
    """The handle of a message that is being sent or received."""

    def __init__(
        self,
        what: str,
        tensor: torch.Tensor,
        request: MPI.Request | FromAny,
        arrived: Callable[[MPI.Status], None],
        limit: Limit,
    ) -> None:
        super().__init__(what, [tensor])
        self._request, self._limit = request, limit
        self._arrived = arrived
        """Called once, when the message is there; raises what is wrong with it."""
        self._status = MPI.Status()
        self._done = False
        adrift.let_go_of_done()

    def __del__(self) -> None:
        if not self._done:
            adrift.keep(self._request, self._arrived)

    def wait(self, timeout: timedelta = FOR_EVER) -> bool:
        try:
            wait(self.is_completed, _seconds(timeout) or self._limit.seconds)
        except TimeUp as late:
            raise self._failed(late) from late
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        if not self._done and self._lock.acquire(blocking=False):  # else another thread waits for it
            try:
                if not self._done:
                    self._look()
            finally:
                self._lock.release()
        return self._done

    def _look(self) -> None:
        try:
            if self._request.Test(self._status):
                self._arrived(self._status)
                self._done = True
        except Exception as error:
            self._error, self._done = self._failed(error), True

    def source_rank(self) -> int:
        self.wait()
        return int(self._status.Get_source())

    _source_rank = source_rank

    def get_future(self) -> Future[list[torch.Tensor]]:
        """A future, for which a thread of its own waits: MPI tells nobody by itself."""
        if self._future is None:
            self._future = self._over.then(self._outcome)
            threading.Thread(target=self._wait_for_future, daemon=True, name="mpi-message").start()
        return self._future

    def _wait_for_future(self) -> None:
        wrong: Exception | None = None
        try:
            self.wait()
        except DistBackendError as error:
            wrong = error
        self._over.set_result(wrong)


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
