"""The steps whose pictures are shown first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.features.pictures.text import choose_few_steps, choose_step, run_pictures
from lab.record.read import Record
from lab.report.style import Style
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.traces import TraceMaker

PLAIN = Style(colour=False)
RESULT = {
    "verdict": "passed", "reason": "all is well", "scenario": "all_reduce", "run": "r", "engine": "local",
    "cluster": "c", "culprit": None, "ranks": [], "duration_s": 1.0, "faults": [], "exit_code": 0, "path": None,
    "expectations": [],
}  # fmt: skip


def made_of(folder: Path, *calls: tuple[str, float]) -> Record:
    """A run of two ranks with calls at lines of their own: the operation, and the output of both ranks."""
    maker = TraceMaker(folder / "run", 2)
    for at, (op, output) in enumerate(calls):
        tensors = ([], []) if op == "barrier" else ([[1.0]], [[output]])
        for rank in range(2):
            maker.call(rank, op, at * 10 + 1, at * 10 + 5, *tensors, red="SUM", at=f"train.py:{at}")
    return maker.record(result=RESULT)


def steps_of(record: Record) -> list[Step]:
    return match_steps(read_trace(record))


def numbers(steps: list[Step]) -> list[int]:
    return [step.number for step in steps]


def test_steps_that_move_data_come_first_and_three_are_enough(tmp_path: Path) -> None:
    record = made_of(tmp_path, ("barrier", 0), *[("all_reduce", 2.0)] * 4)
    assert numbers(choose_few_steps(steps_of(record))) == [2, 3, 4]


def test_a_barrier_alone_is_drawn(tmp_path: Path) -> None:
    assert numbers(choose_few_steps(steps_of(made_of(tmp_path, ("barrier", 0))))) == [1]


def test_equal_steps_in_a_row_count_once_and_a_long_run_has_no_pictures(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for at in range(20):
        for rank in range(2):
            maker.call(rank, "all_reduce", at * 10, at * 10 + 5, [[1.0]], [[2.0]], red="SUM")
    assert numbers(choose_few_steps(steps_of(maker.record()))) == [1]
    assert choose_few_steps(steps_of(made_of(tmp_path / "long", *[("all_reduce", 2.0)] * 7))) == []


def test_a_step_that_a_rank_missed_is_among_the_three(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for at in range(4):
        for rank in range(2):
            maker.call(rank, "all_reduce", at * 10, at * 10 + 5, [[1.0]], [[2.0]], red="SUM", at=f"train.py:{at}")
    maker.call(0, "barrier", 90, None)
    assert numbers(choose_few_steps(steps_of(maker.record()))) == [1, 2, 5]


@pytest.mark.parametrize(("answer", "number"), [("[3.0]", 2), ("3.0", 2), ("[2.0]", 1), ("", 1), ("seven", 1)])
def test_the_step_that_gave_the_right_answer_is_what_a_lesson_is_about(
    answer: str, number: int, tmp_path: Path
) -> None:
    step = choose_step(steps_of(made_of(tmp_path, ("all_reduce", 2.0), ("all_reduce", 3.0))), "all_reduce", answer)
    assert step is not None
    assert step.number == number


def test_after_a_lesson_only_the_step_of_its_question_is_drawn(tmp_path: Path) -> None:
    record = made_of(tmp_path, ("all_reduce", 2.0), ("all_reduce", 3.0))
    trace = read_trace(record)
    assert len(run_pictures(record, trace, steps_of(record), PLAIN, 0)) == 2
    (record.path / "prediction.json").write_text(json.dumps({"lesson": "all_reduce", "answer": "[3.0]"}))
    (text,) = run_pictures(record, trace, steps_of(record), PLAIN, 0)
    assert text.startswith("step 2 of 2: ")


def test_on_a_terminal_pictures_stay_on_one_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = made_of(tmp_path, *[("all_reduce", 2.0)] * 3)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((100, 40)))
    trace, steps, terminal = read_trace(record), steps_of(record), PLAIN._replace(width=100)
    assert [len(run_pictures(record, trace, steps, terminal, used)) for used in (0, 30)] == [2, 1]
    assert len(run_pictures(record, trace, steps, PLAIN, 99)) == 3
