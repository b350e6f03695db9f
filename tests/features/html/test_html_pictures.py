from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.html.page import choose_steps
from lab.features.pictures.model import picture_of, unrecorded_ranks
from lab.features.pictures.svg import svg_of
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_a_wrong_result_among_many_right_ones_gets_a_picture(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for number in range(300):
        total = 4.0 if number == 250 else 3.0
        for rank in range(2):
            made.call(rank, "all_reduce", number, number + 0.5, [[1.0 + rank]], [[total]], red="SUM")
    chosen = choose_steps(match_steps(read_trace(made.record())), limit=20)
    assert 251 in [step.number for step in chosen]
    assert len(chosen) == 20


def test_a_rank_without_a_trace_is_not_said_to_have_stayed_away(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "all_reduce", 1, 2, [[1.0]], [[3.0]], red="SUM")
    made.lines[1] = [line for line in made.lines[1] if line["k"] == "start"]
    made.line(1, "cut", 1, why="the disk is full")
    trace = read_trace(made.record(stop=False))
    [step] = match_steps(trace)
    assert "never entered" not in svg_of(picture_of(step, (), 2, unrecorded_ranks(trace)))
    assert "never entered" in svg_of(picture_of(step, (), 2))
