"""Projections of trainings whose true times are known, from 2 and 4 ranks to 8 and 16."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.projection.project import Projection, project_run, source_of
from lab.trace.read import read_trace
from tests.features.projection.simulated import Truth, simulated

SIZES = [8, 16]


def projected(folder: Path, truth: Truth) -> tuple[Projection, list[float]]:
    """What is projected to those sizes, and the steps that are so, in milliseconds."""
    makers = [simulated(folder / str(ranks), ranks, truth)[0] for ranks in (2, 4)]
    sources = [source_of(str(maker.path), read_trace(maker.record())) for maker in makers]
    true = [simulated(folder / f"true {ranks}", ranks, truth, seed=1)[1] for ranks in SIZES]
    return project_run(sources, SIZES, None), true


def test_alpha_and_bandwidth_are_found(tmp_path: Path) -> None:
    found, true = projected(tmp_path, Truth(alpha=0.05, per_byte=2e-6))
    line = found.fits["all_reduce"].line
    assert (line.alpha_s, line.inverse) == pytest.approx((0.05e-3, 2e-9), rel=0.02)
    assert [1e3 * row.step_s for row in found.rows] == pytest.approx(true, rel=0.01)


def test_the_more_ranks_vary_the_later_is_the_latest_of_them(tmp_path: Path) -> None:
    found, true = projected(tmp_path, Truth(jitter=0.3))
    steps = [1e3 * row.step_s for row in found.rows]
    assert steps == pytest.approx(true, rel=0.05)
    calm = [1e3 * row.step_s for row in projected(tmp_path / "calm", Truth())[0].rows]
    assert all(one > 1.3 * other for one, other in zip(steps, calm, strict=True))


@pytest.mark.parametrize("others", [0, 6])
def test_cores_that_ranks_share_with_one_another_and_with_other_programs(tmp_path: Path, others: float) -> None:
    found, true = projected(tmp_path, Truth(cores=2, others=others))
    assert found.machine is not None
    assert found.machine.others == pytest.approx(others, abs=0.3)
    assert [1e3 * row.step_s for row in found.rows] == pytest.approx(true, rel=0.03)


def test_a_device_that_works_for_each_rank_is_not_shared(tmp_path: Path) -> None:
    found, true = projected(tmp_path, Truth(cores=2, others=2, work=1.0, idle=30.0))
    # work counts with how much of a core it wants on average, and here all want one at the same moment
    assert [1e3 * row.step_s for row in found.rows] == pytest.approx(true, rel=0.1)


def test_every_world_on_record_is_replayed_as_it_was(tmp_path: Path) -> None:
    found, _ = projected(tmp_path, Truth(cores=2, others=3, jitter=0.2))
    for row in found.checks:
        assert row.step_s == pytest.approx(row.measured_s, rel=0.05)


def test_the_interval_knows_that_other_programs_were_not_always_as_many(tmp_path: Path) -> None:
    def width(*others: float) -> float:
        folder = tmp_path / str(others)
        makers = [
            simulated(folder / str(ranks), ranks, Truth(cores=2, others=count))[0]
            for ranks, count in zip((2, 4), others, strict=True)
        ]
        sources = [source_of(str(maker.path), read_trace(maker.record())) for maker in makers]
        row = project_run(sources, [8], None).rows[0]
        return row.high_s / row.low_s

    assert width(4, 4) < 1.05
    assert width(1, 7) > 1.3
