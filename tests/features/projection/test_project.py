"""Projections of records that were made by hand: what they find, what they assume, what they refuse."""

from __future__ import annotations

import json
import random
import xml.dom.minidom
from contextlib import suppress
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.features.projection.costs import parse_network
from lab.features.projection.project import (
    Projection,
    Source,
    project_run,
    projection_json,
    projection_svg,
    projection_text,
    source_of,
)
from lab.report.style import Style
from lab.trace.read import read_trace
from tests.features.projection.runs import data_parallel, pipeline, sharded
from tests.golden import golden
from tests.traces import TraceMaker


def source(maker: TraceMaker) -> Source:
    return source_of(maker.path.name, read_trace(maker.record()))


def projected(maker: TraceMaker, ranks: list[int], network: str = "measured") -> Projection:
    return project_run([source(maker)], ranks, parse_network(network), None)


def test_a_record_is_replayed_as_it_was(tmp_path: Path) -> None:
    found = projected(data_parallel(tmp_path / "r", 2), [2])
    assert found.rows[0].step_s == pytest.approx(0.050, rel=1e-3)
    assert found.rows[0].measured_s == pytest.approx(0.050, rel=1e-3)
    assert found.checks[0].step_s == found.rows[0].step_s


def test_warm_up_is_left_out_and_said(tmp_path: Path) -> None:
    found = projected(data_parallel(tmp_path / "r", 2), [2])
    assert (found.steps, found.left_out) == (4, 1)


def test_steps_in_which_nothing_is_sent_are_left_out_however_many_there_are(tmp_path: Path) -> None:
    run = data_parallel(tmp_path / "r", 2)
    for rank in range(2):
        for step in range(6, 20):  # of a reference that each rank trains by itself
            run.mark(rank, "step", 50.0 * step + 40, 50.0 * step + 50)
    found = projected(run, [2])
    assert (found.steps, found.left_out) == (4, 15)


def test_ranks_on_machines_of_their_own_keep_their_work_and_pay_for_the_network(tmp_path: Path) -> None:
    found = projected(data_parallel(tmp_path / "r", 2), [8, 64], "lan-1g")
    ring = 2 * 7 * 50e-6 + 2 * 7 / 8 * 400_000 / 125e6
    call = found.rows[0].calls[0]
    assert (call.op, call.ranks, call.bytes) == ("all_reduce", 8, 400_000)
    assert call.seconds <= ring
    assert found.rows[0].own_s == pytest.approx(0.040, rel=1e-3)
    assert found.rows[1].step_s > found.rows[0].step_s
    assert golden(1) in found.assumed[0]


def test_a_call_that_ran_beside_backward_is_hidden_there_too(tmp_path: Path) -> None:
    hidden = projected(data_parallel(tmp_path / "r", 2, overlapped=True), [8], "lan-10g").rows[0]
    exposed = projected(data_parallel(tmp_path / "s", 2), [8], "lan-10g").rows[0]
    assert hidden.hidden_s > 0
    assert exposed.hidden_s == pytest.approx(0, abs=1e-6)


def test_shards_keep_their_bytes_in_all_and_the_optimizer_has_less_to_do(tmp_path: Path) -> None:
    found = projected(sharded(tmp_path / "r", 2), [2, 8], "lan-10g")
    assert {call.bytes for row in found.rows for call in row.calls} == {400_000}
    assert found.rows[0].own_s - found.rows[1].own_s == pytest.approx(0.010 * 3 / 4, rel=0.01)
    assert "sharded" in found.assumed[1]


def test_ranks_that_share_cores_on_record_are_given_cores_of_their_own_elsewhere(tmp_path: Path) -> None:
    maker = data_parallel(tmp_path / "r", 4, cores=2)
    assert projected(maker, [4], "lan-10g").rows[0].own_s == pytest.approx(0.020, rel=0.02)
    here = projected(maker, [4, 8])
    assert here.machine is not None
    assert here.machine.cores == 2
    assert here.rows[0].step_s == pytest.approx(0.050, rel=0.02)
    assert here.rows[1].own_s == pytest.approx(2 * here.rows[0].own_s, rel=0.05)


def test_other_programs_on_the_machine_are_found_and_can_be_thought_away(tmp_path: Path) -> None:
    maker = data_parallel(tmp_path / "r", 2, cores=2)
    for rank in range(2):
        maker.line(rank, "cpu", 51, ran=0, queued=0)
        maker.line(rank, "cpu", 299, ran=100_000_000, queued=100_000_000)  # half of what the other rank leaves it
    one = source(maker)
    assert one.machine is not None
    assert one.machine.others == pytest.approx(2, abs=0.2)
    beside, alone = (project_run([one], [2], None, others=others).rows[0].step_s for others in (None, 0.0))
    assert beside == pytest.approx(0.050, rel=0.05)
    assert alone == pytest.approx(0.025, rel=0.1)


def test_a_pipeline_gets_more_stages_in_the_order_that_it_had(tmp_path: Path) -> None:
    found = projected(pipeline(tmp_path / "r", stages=2, batches=4), [2, 4, 8], "lan-100g")
    steps = [row.step_s for row in found.rows]
    # 1F1B of as many stages as there are: batches + stages - 1 turns of a forward and a backward, and the optimizer
    assert steps == pytest.approx([0.030 * (4 + stages - 1) + 0.010 for stages in (2, 4, 8)], rel=0.05)
    assert found.assumed == (golden(1),)


def test_the_interval_widens_with_the_distance(tmp_path: Path) -> None:
    rows = projected(data_parallel(tmp_path / "r", 2), [4, 64, 1024], "lan-10g").rows
    wide = [row.high_s / row.low_s for row in rows]
    assert wide == sorted(wide)
    assert all(row.low_s < row.step_s < row.high_s for row in rows)


def test_several_runs_are_fitted_together_and_the_largest_is_replayed(tmp_path: Path) -> None:
    sources = [source(data_parallel(tmp_path / str(ranks), ranks)) for ranks in (4, 2)]
    found = project_run(sources, [8], None, None)
    assert found.runs == (("2", 2), ("4", 4))
    assert [sample.ranks for sample in found.fits["all_reduce"].samples] == [2, 4]


def test_runs_of_different_trainings_are_refused(tmp_path: Path) -> None:
    sources = [source(data_parallel(tmp_path / "a", 2)), source(sharded(tmp_path / "b", 4))]
    with pytest.raises(LabError, match=golden(1)):
        project_run(sources, [8], None, None)


def test_what_has_no_training_steps_too_few_or_no_communication_is_refused(tmp_path: Path) -> None:
    plain = TraceMaker(tmp_path / "plain")
    for rank in range(2):
        plain.call(rank, "all_reduce", 1, 2, [[1.0]])
    with pytest.raises(LabError, match=golden(1)):
        source(plain)
    with pytest.raises(LabError, match=golden(2)):
        source(data_parallel(tmp_path / "short", 2, steps=2))
    alone = TraceMaker(tmp_path / "alone", 1)
    for step in range(5):
        alone.mark(0, "step", 10 * step, 10 * step + 1)
    with pytest.raises(LabError, match="do not communicate"):
        source(alone)


def test_a_world_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=golden(1)):
        projected(data_parallel(tmp_path / "r", 2), [1 << 21])


def test_where_nobody_says_which_worlds_those_are_taken_that_the_run_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.features.projection.project.WORLDS", (8, 1024))
    run = source(pipeline(tmp_path / "r", stages=2, batches=2, steps=4))
    assert [row.ranks for row in project_run([run], None, parse_network("lan-1g")).rows] == [8]
    with pytest.raises(LabError, match=golden(1)):
        project_run([run], [1024], None)


WRONG = [None, -1, 0, 1 << 62, 10**30, -1.5, 1e308, "", "text", [], [["a"]], {}]


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_record_is_projected_or_refused_in_a_sentence(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    maker = pipeline(tmp_path / "r", stages=2, batches=2, steps=4) if seed % 2 else data_parallel(tmp_path / "r", 2)
    lines = maker.lines[draw.randrange(2)]
    for _ in range(3):
        line = draw.choice(lines[1:])
        line[draw.choice([name for name in line if name not in ("k", "t")] or ["e"])] = draw.choice(WRONG)
    with suppress(LabError):
        found = projected(maker, [4])
        assert projection_text(found, Style(colour=False))
        json.dumps(projection_json(found), allow_nan=False)


def test_the_views_say_all_of_it(tmp_path: Path) -> None:
    found = projected(data_parallel(tmp_path / "<b>", 2), [8, 4096], "lan-100g,racks=8")
    said = projection_text(found, Style(colour=False))
    for words in ("4,096", "tree", "Assumed: data parallel groups grow", "1 other left out", "lan-100g,racks=8"):
        assert words in said
    data = json.loads(json.dumps(projection_json(found)))
    assert data["runs"] == [{"run": "<b>", "ranks": 2}]
    assert data["rows"][1]["ranks"] == 4096
    picture = projection_svg(found)
    assert "&lt;b&gt;" in picture
    xml.dom.minidom.parseString(picture)


def test_a_run_that_stopped_in_its_first_step_of_the_optimizer_is_refused(tmp_path: Path) -> None:
    maker = data_parallel(tmp_path / "r", 2, cores=2)
    for rank in range(2):
        maker.line(rank, "cpu", 51, ran=0, queued=0)
        maker.line(rank, "cpu", 299, ran=100_000_000, queued=100_000_000)
    record = maker.record()
    for rank in range(2):
        trace = record.path / "trace" / f"rank{rank}.jsonl"
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        last = [line for line in lines if line.get("n") == "step" and line["e"] == 0][-1]
        kept = [line for line in lines if line.get("n") != "step" or line is last]
        trace.write_text("".join(f"{json.dumps(line)}\n" for line in kept))
    with pytest.raises(LabError):
        source_of("r", read_trace(record))
