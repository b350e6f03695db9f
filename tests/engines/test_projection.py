"""Projections of real runs: what grows is found, what cannot be projected is refused. Times are not looked at."""

from __future__ import annotations

import pytest

from lab import Result
from lab.errors import LabError
from lab.features.projection.cores import cores_of
from lab.features.projection.costs import parse_network
from lab.features.projection.project import Projection, project_run, source_of
from lab.record.read import Record
from lab.trace.read import read_trace
from tests.engines.lessons import Lesson
from tests.golden import golden

pytestmark = pytest.mark.long


def projected(result: Result) -> Projection:
    assert result.passed, result.reason
    assert result.path is not None
    source = source_of(result.run, read_trace(Record(path=result.path)))
    assert source.machine is not None, "the trace tells how many cores there are"
    cores = [cores_of(rank) for rank in source.trace.ranks.values()]
    assert all(one.own.ran_s > 0 for one in cores), "and how long the thread that trains ran"
    assert all(one.other_threads.ran_s > 0 for one in cores), "and those that carried its calls"
    return project_run([source], [8, 512], parse_network("lan-100g,racks=4"))


def test_ddp_grows_with_the_bytes_of_its_buckets(lesson: Lesson) -> None:
    found = projected(lesson("network/unlimited"))
    assert {(call.op, call.ranks) for call in found.rows[1].calls} == {("all_reduce", 512)}
    assert sum(call.bytes * call.count for call in found.rows[1].calls) == 4 * (384 * 384 + 384) * 4
    assert found.rows[0].low_s < found.rows[0].step_s < found.rows[0].high_s


def test_what_fsdp_shards_stays_as_large_in_all(lesson: Lesson) -> None:
    found = projected(lesson("beyond_ddp/fully_sharded"))
    assert {call.op for call in found.rows[1].calls} == {"all_gather_into_tensor", "reduce_scatter_tensor"}
    assert any("sharded" in sentence for sentence in found.assumed)
    assert [{call.bytes for call in row.calls} for row in found.rows] == [
        {call.bytes for call in found.checks[0].calls}
    ] * 2


def test_a_lesson_without_an_optimizer_is_refused(lesson: Lesson) -> None:
    with pytest.raises(LabError, match=golden(1)):
        projected(lesson("beyond_ddp/pipeline"))
