from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from collections.abc import Iterator

import pytest

from lab.features.interactive.terminal import Keyboard

pytestmark = pytest.mark.unit


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    there, here = os.openpty()
    yield there, here
    os.close(there)
    os.close(here)


def test_keys_come_as_they_are_typed_and_then_it_is_as_before(ends: tuple[int, int]) -> None:
    there, here = ends
    before = termios.tcgetattr(here)
    keyboard = Keyboard(here)
    os.write(there, b"typed before\n")
    assert select.select([here], [], [], 10.0)[0]
    keyboard.enter_raw_mode()
    keyboard.enter_raw_mode()
    assert keyboard.is_raw
    os.write(there, b"\x03\r")
    assert keyboard.read() == b"\x03\r"
    assert termios.tcgetattr(here)[1] == before[1]  # what is written acts as ever
    keyboard.restore()
    keyboard.restore()
    assert termios.tcgetattr(here) == before


def test_its_size_is_known(ends: tuple[int, int]) -> None:
    keyboard = Keyboard(ends[1])
    fcntl.ioctl(ends[0], termios.TIOCSWINSZ, struct.pack("4H", 20, 90, 0, 0))
    assert keyboard.size == (20, 90)


def test_without_a_terminal_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 0)
    assert Keyboard.find() is None
