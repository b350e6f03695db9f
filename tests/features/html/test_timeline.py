"""The still timeline: where things lie, what is hatched, and what is told of each call."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.features.html.timelines import Axis, timeline_svg
from lab.trace.model import Trace
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.golden import golden
from tests.traces import TraceMaker

ONE = [1.0]


def test_an_axis_runs_evenly_to_both_ends() -> None:
    axis = Axis(1.0, 3.0)
    left, middle, right = map(axis.position, (1.0, 2.0, 3.0))
    assert middle == (left + right) / 2
    assert (axis.position(-1.0), axis.position(500.0)) == (left, right)
    assert [moment for _, moment in axis.ticks()] == ["1.0 s", "1.5 s", "2.0 s", "2.5 s", "3.0 s"]


def test_an_axis_of_one_moment_has_a_place_for_it() -> None:
    assert Axis(2.0, 2.0).position(2.0) == Axis(1.0, 3.0).position(1.0)


def drawn(maker: TraceMaker, lanes: list[list[int]] | None = None) -> tuple[str, Trace, list[Step]]:
    trace = read_trace(maker.record(stop=False))
    steps = match_steps(trace)
    svg = timeline_svg(trace, steps, lanes or [[rank] for rank in trace.ranks], prefix="p")
    return svg, trace, steps


def titles(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]


@pytest.fixture
def maker(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", world_size=2)


def test_a_call_has_its_duration_and_is_hatched_while_it_waits(maker: TraceMaker) -> None:
    maker.call(0, "all_reduce", 0, 30, [ONE], [ONE], red="SUM", at="train.py:7")
    maker.call(1, "all_reduce", 20, 30, [ONE], [ONE], red="SUM", at="train.py:7")
    svg, _, _ = drawn(maker)
    assert titles(svg) == [
        golden(1),
        golden(2),
    ]
    assert svg.count('fill="url(#p-0)"') == 1


def test_nobody_waited_by_less_than_the_uncertainty_of_the_clocks(maker: TraceMaker) -> None:
    maker.on_hosts(error_ms=4)
    for begins in ((0, 20), (50, 57)):
        for rank, begin in enumerate(begins):
            maker.call(rank, "all_reduce", begin, 40 + begins[0], [ONE], [ONE], red="SUM", at="train.py:7")
    svg, _, steps = drawn(maker)
    assert [step.last for step in steps] == [1, None]
    assert [step.waited[0] for step in steps] == [pytest.approx(0.02), 0.0]
    assert svg.count('fill="url(#p-0)"') == 1


def test_what_never_ended_is_told(maker: TraceMaker) -> None:
    maker.call(0, "barrier", 0, None)
    maker.mark(1, "forward", 0, 50)
    svg, _, _ = drawn(maker)
    assert golden(1) in titles(svg)
    assert "stroke-dasharray" in svg


@pytest.mark.parametrize(
    ("op", "begins", "waits_for"),
    [
        ("scatter", (20, 0, 10), (None, 0, 0)),
        ("broadcast", (0, 10, 20), (None, None, None)),
        ("gather", (0, 10, 20), (2, None, None)),
        ("all_gather", (0, 10, 20), (2, 2, None)),
    ],
)
def test_a_rank_waits_for_those_whose_data_it_needs(
    tmp_path: Path, op: str, begins: tuple[int, ...], waits_for: tuple[int | None, ...]
) -> None:
    maker = TraceMaker(tmp_path / "run", world_size=3)
    for rank, begin in enumerate(begins):
        maker.call(rank, op, begin, 30, [ONE], [ONE], root=0)
    trace = read_trace(maker.record())
    (step,) = match_steps(trace)
    late = [step.awaited(step.calls[rank]) for rank in range(3)]
    assert tuple(None if call is None else call.rank for call in late) == waits_for


def test_calls_that_overlap_lie_below_each_other(maker: TraceMaker) -> None:
    maker.call(0, "all_reduce", 0, 30, [ONE], [ONE])
    maker.call(0, "all_reduce", 10, 40, [ONE], [ONE])
    svg, _, _ = drawn(maker)
    assert len(set(re.findall(r'y="([\d.]+)" height="13" fill="#', svg))) == 2


def test_thousands_of_short_calls_are_few_bars(maker: TraceMaker) -> None:
    for number in range(5000):
        maker.call(0, "barrier", number * 0.1, number * 0.1 + 0.05)
    svg, _, _ = drawn(maker)
    assert len(titles(svg)) < 1000


def test_a_run_without_calls_has_no_timeline(tmp_path: Path) -> None:
    assert drawn(TraceMaker(tmp_path / "empty"))[0] == ""


def test_a_lane_of_several_ranks_shows_the_first_and_names_the_others(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "many", world_size=20)
    for rank in range(20):
        maker.call(rank, "barrier", 10 * rank, 200 + rank)
    svg, _, _ = drawn(maker, [[0, *range(2, 20)], [1]])
    texts = [text.text for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text and text.startswith(("rank", "and"))] == ["rank 0", "and 18 more", "rank 1"]
    assert [title.partition("\n")[0] for title in titles(svg)] == ["and so ranks 2-19", "barrier", "barrier"]
