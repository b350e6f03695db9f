"""Step by step: which held calls go on together, and that time stands still meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.features.watch import now as clock
from lab.features.watch import now as steps
from lab.features.watch.now import Follower, Now, Watched
from lab.node.messages.agent import EVERY_RANK, RUN_ON
from tests.features.watch.growing import ORIGIN, Growing
from tests.golden import golden

MESSAGE = {"g": "0", "in": [["float32", [1]]], "iv": [[1.0]], "ib": 4, "tag": 0}
COLLECTIVE = {"g": "0", "in": [["float32", [1]]], "iv": [[1.0]], "ib": 4, "red": "SUM", "async": False}


class Class:
    """A run that is held at its calls, and whoever presses keys."""

    def __init__(self, folder: Path) -> None:
        self.run = Growing(folder)
        self.watched = Watched(step=True)
        self.follower = Follower(self.run.record, stepping=True)
        self.stepper = self.watched

    def hold(self, rank: int, index: int, op: str, **facts: Any) -> None:
        self.run.made.line(rank, "hold", 10, i=index, op=op, **facts)

    def look(self) -> Now:
        self.run.write()
        return self.stepper.update(self.follower.poll(ORIGIN + 1.0)[0], self.follower)


@pytest.fixture
def lecture(tmp_path: Path) -> Iterator[Class]:
    made = Class(tmp_path / "run")
    yield made
    made.run.end()


def test_nobody_goes_on_without_a_key(lecture: Class):
    for rank in range(3):
        lecture.hold(rank, 1, "all_reduce", seq=1, **COLLECTIVE)
    assert lecture.look().next == "all_reduce #1"
    assert lecture.watched.collect_released() == {}


def test_a_press_lets_a_whole_step_go_and_only_once(lecture: Class):
    for rank in range(3):
        lecture.hold(rank, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.stepper.press()
    lecture.look()
    assert lecture.watched.collect_released() == {0: 1, 1: 1, 2: 1}
    lecture.stepper.press()  # before the traces tell that they have gone on
    assert lecture.look().next == ""
    assert lecture.watched.collect_released() == {}


def test_a_press_waits_for_a_rank_that_is_on_its_way(lecture: Class):
    for rank in (0, 1):
        lecture.hold(rank, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.stepper.press()
    assert lecture.look().next == golden(1)
    assert lecture.watched.collect_released() == {}
    lecture.hold(2, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.look()
    assert lecture.watched.collect_released() == {0: 1, 1: 1, 2: 1}


def test_it_does_not_wait_for_ever(lecture: Class, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "_PATIENCE_S", -1.0)
    lecture.hold(0, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.stepper.press()
    lecture.look()
    assert lecture.watched.collect_released() == {0: 1}


def test_a_message_goes_when_both_ends_have_come_and_others_stay_held(lecture: Class):
    lecture.hold(0, 1, "send", peer=1, **MESSAGE)
    lecture.hold(1, 1, "recv", peer=0, **MESSAGE, out=[["float32", [1]]])
    lecture.hold(2, 1, "recv", peer=1, **MESSAGE, out=[["float32", [1]]])
    lecture.stepper.press()
    assert lecture.look().next == ""
    assert lecture.watched.collect_released() == {0: 1, 1: 1}


def test_where_no_step_can_be_whole_everybody_goes(lecture: Class):
    for rank in range(3):  # a ring in which all receive first
        lecture.hold(rank, 1, "recv", peer=(rank - 1) % 3, **MESSAGE, out=[["float32", [1]]])
    lecture.stepper.press()
    lecture.look()
    assert lecture.watched.collect_released() == {0: 1, 1: 1, 2: 1}


def test_whoever_is_inside_counts_as_come_and_who_has_ended_never_comes(lecture: Class):
    lecture.run.made.call(0, "all_reduce", 10, None, [[1.0]], red="SUM")
    lecture.hold(1, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.run.event("exited", 2, 20, code=0)
    lecture.stepper.press()
    lecture.look()
    assert lecture.watched.collect_released() == {1: 1}


def test_running_on_holds_nobody_and_time_goes_on(lecture: Class):
    lecture.hold(0, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.look()
    lecture.stepper.run_on()
    assert lecture.watched.collect_released() == {EVERY_RANK: RUN_ON}
    assert not lecture.look().stepping
    assert lecture.watched.held_s == lecture.watched.held_s


def test_time_stands_still_while_a_rank_is_held_but_not_for_ever(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    watched = Watched(step=True)
    assert watched.held_s == 0
    watched.set_held(held=True)
    now[0] += 5
    assert watched.held_s == 5
    watched.set_held(held=False)
    now[0] += 5
    assert watched.held_s == 5
    watched.set_held(held=True)
    now[0] += 2 * clock.LONGEST_HOLD_S
    assert watched.held_s == 5 + clock.LONGEST_HOLD_S
    watched.release({0: 1})  # somebody is there
    now[0] += 7
    assert watched.held_s == 5 + clock.LONGEST_HOLD_S + 7


def test_what_is_let_go_rings_the_bell_of_the_run():
    import select

    watched = Watched(step=True)
    assert select.select([watched], [], [], 0)[0] == []
    watched.release({0: 3, 1: 3})
    watched.release({1: 4})
    assert select.select([watched], [], [], 0)[0] == [watched]
    assert watched.collect_released() == {0: 3, 1: 4}
    assert select.select([watched], [], [], 0)[0] == []


def test_whoever_has_just_been_let_go_is_on_the_way(lecture: Class):
    for rank in range(3):
        lecture.hold(rank, 1, "all_reduce", seq=1, **COLLECTIVE)
    lecture.stepper.press()
    lecture.look()
    lecture.watched.collect_released()
    lecture.run.made.call(0, "all_reduce", 20, 30, [[1.0]], [[3.0]], red="SUM")
    lecture.run.made.line(0, "hold", 40, i=2, op="all_reduce", seq=2, **COLLECTIVE)  # the others' traces come later
    lecture.stepper.press()
    assert lecture.look().next == golden(1)
    assert lecture.watched.collect_released() == {}
