"""Ctrl-C ends a command once; what it began then is not cut short by the next."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from lab.cli import main as program
from lab.engine.interrupts import defer_interrupts, raise_interrupts
from tests.golden import golden


def press(number: int = signal.SIGINT) -> None:
    signal.raise_signal(number)  # its handler is called at once, not in whatever comes next


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_interrupts_and_a_second_does_not_cut_the_end_short(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    done = []
    before = signal.getsignal(number)

    def command() -> None:
        with raise_interrupts():
            try:
                press(number)
            finally:
                press(number)
                press(signal.SIGINT)
                done.append(True)

    with pytest.raises(KeyboardInterrupt):
        command()
    assert done == [True]
    assert capfd.readouterr().err == golden(1) * 2
    assert signal.getsignal(number) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raise_interrupts():
            press(signal.SIGHUP)
        with defer_interrupts():
            press(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_must_be_done_is_done_before_an_interrupt_counts() -> None:
    done = []

    def remove() -> None:
        with defer_interrupts():
            press()
            press()
            done.append("removed")
        done.append("too far")

    with pytest.raises(KeyboardInterrupt):
        remove()
    assert done == ["removed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_what_must_be_done_is_not_hidden() -> None:
    def fail() -> None:
        with defer_interrupts():
            press()
            raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        fail()


def test_other_threads_have_nothing_to_put_off() -> None:
    done = []

    def work() -> None:
        with defer_interrupts(), raise_interrupts():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert done == [True]


def test_ctrl_c_before_a_verb_has_begun_says_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["lab.cli.main"], "_main", interrupted)
    assert program.main(["runs"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cb", "<frozen importlib._bootstrap>"),
        ("__del__", "some.py"),
        ("remove", weakref.WeakKeyDictionary.__init__.__code__.co_filename),
    ],
)
def test_ctrl_c_where_python_would_only_print_it_counts_a_moment_later(name: str, file: str) -> None:
    def loses(press: Callable[[], None], done: list[bool]) -> None:
        press()
        done.append(True)

    done: list[bool] = []
    loses.__code__ = loses.__code__.replace(co_name=name, co_filename=file)

    def command() -> None:
        with raise_interrupts():
            loses(press, done)
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        command()
    assert done == [True]
