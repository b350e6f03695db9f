"""What the page of a run shows: which steps, and that nothing is said to be over that is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.features.watch import server as subject
from lab.features.watch.now import Follower, Now
from lab.features.watch.server import Pictures, report_of, state_of
from tests.features.watch.growing import ORIGIN, Growing
from tests.golden import golden

HELD = {"g": "0", "in": [["float32", [1]]], "iv": [[1.0]], "ib": 4, "red": "SUM", "async": False}


class Shown:
    """A run and the pictures that its page has."""

    def __init__(self, folder: Path) -> None:
        self.run = Growing(folder)
        self.follower = Follower(self.run.record)
        self.pictures = Pictures()

    def look(self, at_ms: float, **changes: object) -> Now:
        self.run.write()
        now, more = self.follower.poll(ORIGIN + at_ms / 1e3)
        while more:
            now, more = self.follower.poll(ORIGIN + at_ms / 1e3)
        now = replace(now, **changes)
        self.pictures.update(now, self.follower)
        return now

    def drawn(self, name: str = "current") -> str:
        return str(self.pictures.drawn[name]["svg"])


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    monkeypatch.setattr(subject, "_SHOWN_S", 0.0)
    made = Shown(tmp_path / "run")
    yield made
    made.run.end()


def test_a_step_that_is_waited_in_is_shown_and_nobody_is_said_never_to_come(shown: Shown) -> None:
    for rank in range(3):
        shown.run.made.call(rank, "all_reduce", 10, 20, [[1.0]], [[3.0]], red="SUM")
    shown.look(30)
    assert shown.pictures.drawn["current"]["title"] == "all_reduce #1"
    shown.run.made.call(0, "all_reduce", 40, None, [[1.0]], red="SUM")
    shown.look(100)
    assert shown.pictures.drawn["current"]["title"] == "all_reduce #1"  # it may be over in a moment
    shown.look(2000)
    assert shown.pictures.drawn["current"]["title"] == "all_reduce #2"
    assert golden(1) in shown.drawn()
    assert "never" not in shown.drawn()
    shown.run.end("hung", "it hung")
    shown.look(3000)
    assert "never entered" in shown.drawn()


def test_who_is_held_has_come_and_has_not_waited(shown: Shown) -> None:
    for rank in range(3):
        shown.run.made.line(rank, "hold", 10 + rank, i=1, op="barrier", seq=1, g="0", **{"async": False})
    shown.look(30, stepping=True, next="barrier #1", next_steps=("barrier #1",))
    assert shown.pictures.drawn.keys() == {"next"}
    assert shown.drawn("next").count(">entered<") == 3
    assert "waited" not in shown.drawn("next")


def test_what_a_key_press_lets_go_is_named_whole(shown: Shown) -> None:
    for rank in range(3):
        shown.run.made.line(rank, "hold", 10, i=1, op="all_reduce", seq=1, **HELD)
    shown.look(30, stepping=True, next="all_reduce #1 and more", next_steps=("all_reduce #1",))
    assert shown.pictures.drawn["next"]["title"] == "all_reduce #1 and more"


def test_a_picture_is_drawn_once(shown: Shown) -> None:
    for rank in range(3):
        shown.run.made.call(rank, "all_reduce", 10, 20, [[1.0]], [[3.0]], red="SUM")
    shown.look(30)
    version, drawn = shown.pictures.version, shown.pictures.drawn
    shown.look(40)
    assert shown.pictures.version == version
    assert shown.pictures.drawn is drawn


def test_a_state_has_the_colours_of_ranks_operations_and_verdicts(shown: Shown) -> None:
    shown.run.made.call(0, "all_reduce", 10, 20, [[1.0]], [[3.0]], red="SUM")
    state = state_of(shown.look(30))
    assert len({rank["colour"] for rank in state["ranks"]}) == 3
    assert list(state["colours"]) == ["all_reduce"]
    assert state["ranks"][0]["recent"][0]["took"] == "10 ms"
    shown.run.end("failed", "why")
    state = state_of(shown.look(40))
    assert (state["verdict"], state["sign"], state["tone"]) == ("failed", "✘", "bad")


def test_the_report_is_written_when_there_is_a_result(shown: Shown) -> None:
    report = report_of(lambda: shown.run.record.path)
    assert report_of(lambda: None)() is None
    assert report() is None
    shown.look(10)
    shown.run.end()
    assert b"all ranks ended as expected" in (report() or b"")
