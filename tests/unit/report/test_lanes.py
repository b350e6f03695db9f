"""Which row of its lane a call stands on: the same on the still timeline, on the page and in exports."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lab.report.export.tracks import make_tracks
from lab.report.html.columns import call_lines
from lab.report.lanes import MOST_ROWS, lay_rows
from lab.report.timeline.axis import make_axis
from lab.report.timeline.layout import make_rows
from lab.trace.read import read_trace
from lab.trace.steps import match
from tests.unit.traces import TraceMaker

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


def test_a_span_that_the_first_row_does_not_take_goes_to_the_next() -> None:
    assert lay_rows([(0, 1), (2, 3), (4, 5)], first_takes=lambda index: index != 1) == [0, 1, 0]


def test_picture_page_and_exports_agree_on_rows(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", world_size=1)
    spans = [(0, 30), (10, 40), (20, None), (35, 50), (60, 70)]
    for begin, end in spans:
        maker.call(0, "all_reduce", begin, end, [[1.0]], [[1.0]])
    record = maker.record()
    trace = read_trace(record)
    steps = match(trace)
    page = [line["row"] for line in call_lines(trace, steps)]
    rows = make_rows(trace.ranks[0], make_axis([(0.0, 0.07)], 0, 1000), 0.07)
    picture = {call.index: number for number, row in enumerate(rows) for bar in row for call in bar.calls}
    (track,) = make_tracks(record, trace, steps)
    export = {one.call.index: number for number, lane in enumerate(track.lanes) for one in lane if one.call is not None}
    assert page == [0, 1, 2, 0, 0]
    assert max(page) < MOST_ROWS
    assert picture == export
    assert [picture[call.index] for call in trace.ranks[0].calls] == page
