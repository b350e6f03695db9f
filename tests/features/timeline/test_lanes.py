"""Which ranks share a lane, and on which of its rows a call stands: the same on picture, page and in exports."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lab.diagnosis.finding import Finding, FindingKind
from lab.features.export.tracks import make_tracks, to_ns
from lab.features.html.timelines import Axis, call_lines, lay_out_bars
from lab.features.timeline.svg import MOST_ROWS, lanes_of, lay_rows
from lab.record.result import Culprit
from lab.report.style import MANY
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.browser.runs import result
from tests.traces import TraceMaker

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40).map(
    lambda pairs: sorted((begin, begin + length) for begin, length in pairs)
)


@given(SPANS)
def test_spans_of_a_row_do_not_overlap_and_no_row_is_taken_without_need(spans: list[tuple[int, int]]) -> None:
    rows = lay_rows(spans)
    for index, (span, row) in enumerate(zip(spans, rows, strict=True)):
        earlier = list(zip(spans[:index], rows[:index], strict=True))
        assert all(end <= span[0] for (_, end), other in earlier if other == row)
        for lower in range(row):
            assert any(end > span[0] for (_, end), other in earlier if other == lower)


def test_what_finds_no_room_stands_on_the_last_row() -> None:
    assert lay_rows([(0, math.inf)] * 4, 2) == [0, 1, 1, 1]


def test_picture_page_and_exports_agree_on_rows(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", world_size=1)
    spans = [(0, 30), (10, 40), (20, None), (35, 50), (60, 70)]
    for begin, end in spans:
        maker.call(0, "all_reduce", begin, end, [[1.0]], [[1.0]])
    record = maker.record()
    trace = read_trace(record)
    steps = match_steps(trace)
    page = [line["row"] for line in call_lines(trace, steps)]
    picture = {to_ns(bar.call.begin): bar.row for bar in lay_out_bars(trace.ranks[0], Axis(0.0, 0.07))}
    tracks = make_tracks(record, trace, steps)
    export = {one.begin: number for number, of in enumerate(tracks) for one in of.slices if one.kind == "collective"}
    assert page == [0, 1, 2, 0, 0]
    assert max(page) < MOST_ROWS
    assert picture == export
    assert [picture[to_ns(call.begin)] for call in trace.ranks[0].calls] == page


def crowd(folder: Path, ranks: int = 40) -> TraceMaker:
    """Ranks of which each makes three calls."""
    maker = TraceMaker(folder, ranks)
    for rank in range(ranks):
        for number in range(3):
            maker.call(rank, "all_reduce", 10 * number, 10 * number + 5, [[1.0]], [[1.0]], at=f"train.py:{number}")
    return maker


def lanes(maker: TraceMaker, *findings: Finding, culprit: int | None = None) -> list[list[int]]:
    record = maker.record(result=result(maker))
    blamed = None if culprit is None else Culprit(rank=culprit)
    told = replace(record.result(), culprit=blamed)
    return lanes_of(range(maker.world_size), [read_trace(record)], [told], findings)


def test_each_of_few_ranks_has_a_lane(tmp_path: Path) -> None:
    assert lanes(crowd(tmp_path / "run", MANY)) == [[rank] for rank in range(MANY)]


def test_ranks_that_called_the_same_share_a_lane_and_the_odd_one_has_its_own(tmp_path: Path) -> None:
    maker = crowd(tmp_path / "run")
    maker.call(7, "barrier", 40, 50)
    maker.call(30, "barrier", 40, None)
    assert lanes(maker) == [[*range(7), *range(8, 30), *range(31, 40)], [7], [30]]


def test_a_culprit_and_the_few_of_a_finding_have_lanes_of_their_own(tmp_path: Path) -> None:
    found = Finding(kind=FindingKind.LATE, ranks=(1, 12))
    most = Finding(kind=FindingKind.MISMATCH, ranks=tuple(range(20)))
    others = [rank for rank in range(40) if rank not in (1, 3, 12)]
    assert lanes(crowd(tmp_path / "run"), found, most, culprit=3) == [others, [1], [3], [12]]


def test_where_no_two_ranks_are_alike_neighbours_share_a_lane(tmp_path: Path) -> None:
    maker = crowd(tmp_path / "run")
    for rank in range(40):
        maker.call(rank, "barrier", 40, 50, at=f"train.py:{100 + rank}")
    assert lanes(maker, culprit=39) == [
        *([rank, rank + 1, rank + 2, rank + 3] for rank in range(0, 36, 4)),
        [36, 37, 38],
        [39],
    ]


def test_two_runs_that_are_compared_have_the_same_lanes(tmp_path: Path) -> None:
    one, other = crowd(tmp_path / "one"), crowd(tmp_path / "other")
    other.call(7, "barrier", 40, 50)
    records = [maker.record(result=result(maker)) for maker in (one, other)]
    found = lanes_of(range(40), [read_trace(one) for one in records], [one.result() for one in records])
    assert found == [[*range(7), *range(8, 40)], [7]]
