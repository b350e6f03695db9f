"""A worker tells of its threads that end by an error, and Python prints them as ever."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from lab.node.messages.agent import ThreadRaised
from lab.node.rank import note
from tests.golden import golden

pytestmark = pytest.mark.unit


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[ThreadRaised]:
    said: list[ThreadRaised] = []
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(note, "send_statement", lambda _, statement: said.append(statement))
    note.report_threads(2, str(Path(__file__).parent), "nowhere")
    return said


def run(target: object, name: str = "loader") -> None:
    thread = threading.Thread(target=target, name=name)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def lose() -> None:
    raise KeyError("no such shard")


def test_an_error_is_told_with_its_thread_and_the_line_of_the_script(
    told: list[ThreadRaised], capsys: pytest.CaptureFixture[str]
) -> None:
    run(lose)
    (one,) = told
    line = lose.__code__.co_firstlineno + 1
    assert (one.rank, one.thread, one.error) == (2, "loader", golden(1))
    assert one.at == f"{Path(__file__).name}:{line}"
    assert "no such shard" in capsys.readouterr().err


def test_a_thread_that_leaves_is_no_error(told: list[ThreadRaised]) -> None:
    run(lambda: sys.exit(3))
    assert told == []


def test_of_very_many_some_are_told(told: list[ThreadRaised]) -> None:
    for _ in range(30):
        run(lose)
    assert len(told) == 20
