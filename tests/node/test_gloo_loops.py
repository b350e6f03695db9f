"""A thread of gloo's that sleeps is woken while a group ends, and only then."""

from __future__ import annotations

import ctypes
import select
import signal
import threading
from collections.abc import Iterator

import pytest

from lab.node.rank.gloo_loops import keep_loops_awake

_PR_SET_NAME = 15
_SPELL_MS = 20_000
_PATIENCE_S = 60.0


class Loop:
    """Waits for news as gloo does, until it is told to end."""

    def __init__(self) -> None:
        self.woken = 0
        self.over = False
        self.sleeps = threading.Event()
        self._told = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.sleeps.wait(_PATIENCE_S)

    def _run(self) -> None:
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_NAME, b"gloo_tcp_loop", 0, 0, 0)
        room = ctypes.create_string_buffer(64)
        with select.epoll() as none:
            while not self.over:
                self.sleeps.set()
                interrupted = library.epoll_wait(none.fileno(), room, 1, _SPELL_MS) == -1
                with self._told:
                    self.woken += interrupted
                    self._told.notify()

    def wakes_within(self, seconds: float) -> bool:
        """Whether it is woken once more in that time."""
        with self._told:
            before = self.woken
            return self._told.wait_for(lambda: self.woken > before, seconds)

    def end(self) -> None:
        self.over = True
        with keep_loops_awake():
            self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    found.end()


def test_a_loop_is_woken_again_and_again_and_then_left_alone(loop: Loop) -> None:
    with keep_loops_awake():
        assert loop.wakes_within(_PATIENCE_S)
        assert loop.wakes_within(_PATIENCE_S)
        assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL, "Python knows of no handler, and misses none"
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    loop.wakes_within(0.5)  # by what was on its way
    assert not loop.wakes_within(0.1)


def test_a_script_that_wants_the_signal_has_it_alone(loop: Loop) -> None:
    told: list[int] = []
    signal.signal(signal.SIGURG, lambda number, _: told.append(number))
    try:
        with keep_loops_awake():
            assert not loop.wakes_within(0.1)
        assert signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
        assert told == []
    finally:
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def test_any_thread_can_wake_others(loop: Loop) -> None:
    woken: list[bool] = []

    def elsewhere() -> None:
        with keep_loops_awake():
            woken.append(loop.wakes_within(_PATIENCE_S))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert woken == [True]
