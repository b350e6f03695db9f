"""Pictures of real runs: what the backend did is what the definition says, but for a case known to come out wrong."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from lab.features.pictures.model import Picture, picture_of, unrecorded_ranks
from lab.features.pictures.svg import svg_of
from lab.features.pictures.text import picture_text
from lab.record.read import Record
from lab.report.style import Style
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.engines.lessons import Lesson, on_engines
from tests.golden import golden

RIGHT = [
    "scatter", "collectives/all_gather", "collectives/all_gather_complex", "collectives/all_gather_object",
    "collectives/all_reduce", "collectives/all_to_all_single", "collectives/async_handles", "collectives/broadcast",
    "collectives/gather", "collectives/reduce", "collectives/reduce_scatter", "collectives/reduce_scatter_tensor",
    "collectives/scatter_rows", "point_to_point/batch_isend_irecv", "point_to_point/recv_any_source",
    "point_to_point/ring_all_reduce", "point_to_point/tags", "groups/new_group",
]  # fmt: skip


@pytest.fixture
def pictures(lesson: Lesson) -> Callable[[str], list[Picture]]:
    """Runs a scenario of the library and draws all its steps."""

    def draw(name: str) -> list[Picture]:
        result = lesson(name)
        assert result.passed, result.reason
        assert result.path is not None
        record = Record(path=result.path)
        trace = read_trace(record)
        assert not trace.problems
        expectations = record.result().expectations
        unrecorded = unrecorded_ranks(trace)
        return [picture_of(step, expectations, trace.world_size, unrecorded) for step in match_steps(trace)]

    return draw


@pytest.mark.local_first
@on_engines(RIGHT)
def test_what_came_out_is_what_the_definition_says(name: str, pictures: Callable[[str], list[Picture]]) -> None:
    drawn = pictures(name)

    compared = [picture for picture in drawn if picture.step.op not in ("barrier", "monitored_barrier")]
    assert compared
    assert [(picture.step.title, picture.check) for picture in compared] == [
        (one.step.title, "right") for one in compared
    ]
    for picture in drawn:
        text = picture_text(picture, Style(colour=False, width=80))
        assert max(len(line) for line in text.splitlines()) <= 80
        assert ET.fromstring(svg_of(picture)).tag.endswith("svg")


@pytest.mark.local_first
def test_the_sum_of_a_strided_view_is_marked_wrong(pictures: Callable[[str], list[Picture]]) -> None:
    strided, packed, _ = pictures("collectives/noncontiguous")

    assert strided.check == "wrong"
    for rank in strided.ranks:
        (block,) = rank.after
        assert block.mismatches == (1,)
        assert block.values == (3.0, 2.0 + rank.rank)
        assert block.expected == (3.0, 9.0)
    assert packed.check == "right"
    shown = picture_text(strided, Style(colour=False, width=120))
    assert golden(1) in shown
