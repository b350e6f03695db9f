from __future__ import annotations

import errno
import os
import termios

import pytest

from lab.node.channels import InputChannel, open_channels
from lab.node.messages.agent import ANOTHERS, FED, NOTHING, ON_REQUEST, OWN, WorkerSettings, WorkerStart

pytestmark = pytest.mark.unit
COMMON = {"out", "err", "stack", "gate"}


def open_inlet(kind: str) -> tuple[InputChannel, dict[str, int], int]:
    """The inlet of a worker of this kind, what the worker reads, and the agent's end of its terminal."""
    mine, theirs = open_channels(WorkerStart(0, 0, {}, [], stdin=kind), WorkerSettings("", ""))
    for ends in mine, theirs:
        for name in COMMON:
            os.close(ends.pop(name))
    for fd in mine.values():
        os.set_blocking(fd, False)
    return InputChannel(mine), theirs, mine.get("terminal", -1)


def close(ends: dict[str, int]) -> None:
    for fd in ends.values():
        os.close(fd)


@pytest.mark.parametrize("kind", [NOTHING, ANOTHERS])
def test_a_worker_that_reads_nothing_is_given_nothing(kind: str) -> None:
    inlet, ends, _ = open_inlet(kind)
    assert ends == {}
    assert inlet.write(b"x", last=False) == (0, True)
    assert inlet.waiting is None


def test_what_is_fed_arrives_as_the_worker_takes_it_and_then_the_end() -> None:
    inlet, ends, _ = open_inlet(FED)
    data, got = os.urandom(300_000), b""
    given, closed = inlet.write(data, last=True)
    assert 0 < given < len(data)
    assert not closed
    while not closed:
        assert inlet.waiting is not None
        got += os.read(ends["in"], 1 << 16)
        more, closed = inlet.flush()
        given += more
    while chunk := os.read(ends["in"], 1 << 16):
        got += chunk
    assert (given, got, inlet.waiting) == (len(data), data, None)
    close(ends)
    inlet.close()


def test_it_is_told_when_nobody_reads() -> None:
    inlet, ends, _ = open_inlet(FED)
    close(ends)
    assert inlet.write(b"x", last=False) == (0, True)
    assert inlet.write(b"x", last=True) == (0, True)


@pytest.mark.parametrize("kind", [ON_REQUEST, OWN])
def test_a_terminal_takes_lines_and_shows_them(kind: str) -> None:
    inlet, ends, terminal = open_inlet(kind)
    inlet.resize(24, 81)
    assert os.get_terminal_size(ends["terminal"]) == (81, 24)
    assert inlet.write(b"ab\x7fc\r", last=False) == (5, False)
    assert os.read(ends["terminal"], 100) == b"ac\n"
    assert os.read(terminal, 100).startswith(b"ab")
    assert termios.tcgetattr(ends["terminal"])[6][termios.VSUSP] == b"\0"
    os.close(terminal)
    close(ends)
    inlet.close()


def test_without_room_for_a_terminal_a_worker_that_may_ask_for_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> tuple[int, int]:
        raise OSError(errno.ENOSPC, "no more")

    monkeypatch.setattr(os, "openpty", full)
    assert open_inlet(ON_REQUEST)[1] == {}
    with pytest.raises(OSError, match="no more"):
        open_inlet(OWN)


def test_sizes_that_no_terminal_has_do_no_harm() -> None:
    inlet, ends, terminal = open_inlet(OWN)
    inlet.resize(-5, 1 << 40)
    assert os.get_terminal_size(ends["terminal"]) == (0xFFFF, 1)
    os.close(terminal)
    close(ends)
    inlet.close()
    InputChannel({}).resize(1, 1)
