"""Tests of the exercise itself: the solution passes, and what students get does not."""

from pathlib import Path

FOLDER = Path(__file__).parent


def test_the_solution_passes(lab_run):
    assert lab_run(FOLDER / "exercise.yaml").passed


def test_what_students_get_does_not_pass_yet(lab_run, tmp_path):
    for name in ("exercise.yaml", "exercise_check.py"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    (tmp_path / "exercise.py").write_text((FOLDER / "exercise_start.py").read_text())
    assert not lab_run(tmp_path / "exercise.yaml").passed
