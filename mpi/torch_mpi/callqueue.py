"""The calls of one group, done one after the other in the order in which they were made, as MPI demands.

A caller that will wait anyway does its call itself, unless others are under way; the rest is done by a thread, which is
started with the first of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Action = Callable[[], None]


class CallQueue:
    """The order of one group's calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Action, Action]] = deque()
        self._busy = False
        """Whether a call is being done."""
        self._closed = False
        self._thread: threading.Thread | None = None

    def do_now(self, action: Action) -> bool:
        """Do it in this thread and return true; false, and nothing is done, where earlier calls are under way.

        What it raises is the caller's. What is called when a call is done may call further ones: those come next.
        """
        with self._changed:
            self._check_open()
            nested = threading.current_thread() is self._thread
            if not nested:
                if self._busy or self._waiting:
                    return False
                self._busy = True
        try:
            action()
        finally:
            if not nested:
                self._ended()
        return True

    def put(self, action: Action, then: Action) -> None:
        """Have it done after all earlier ones, and `then` be called; neither may raise."""
        with self._changed:
            self._check_open()
            self._waiting.append((action, then))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more calls, and return when all have been done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._busy or not self._waiting:
                    if self._closed and not self._waiting:
                        return
                    self._changed.wait()
                action, then = self._waiting.popleft()
                self._busy = True
            action()
            self._ended()
            then()
            del action, then  # they hold tensors, and this thread may now wait for long

    def _ended(self) -> None:
        with self._changed:
            self._busy = False
            if self._waiting or self._closed:
                self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the process group has been destroyed")
