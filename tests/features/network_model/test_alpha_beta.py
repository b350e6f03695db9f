"""The alpha-beta model: what it finds in times that were made with it, and what it leaves unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.network_model.model import (
    Timing,
    fit_models,
    network_json,
    network_text,
    pace_of,
    timings_of,
)
from lab.report.style import Style
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.golden import golden
from tests.traces import TraceMaker

ALPHA_S, BANDWIDTH = 50e-6, 12.5e6
SIZES = (1_000, 40_000, 1_000_000)


def exact(ranks: int, size: int) -> float:
    return 2 * (ranks - 1) * ALPHA_S + 2 * (ranks - 1) / ranks * size / BANDWIDTH


def timing(ranks: int, size: int, factor: float = 1.0) -> Timing:
    return Timing(ranks=ranks, bytes=size, seconds=factor * exact(ranks, size), count=5)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_times_that_the_model_made_are_fitted_without_an_error(ranks: int) -> None:
    (model,) = fit_models([timing(ranks, size) for size in SIZES])
    assert model.alpha_s == pytest.approx(ALPHA_S)
    assert model.bandwidth == pytest.approx(BANDWIDTH)
    assert model.error == pytest.approx(0, abs=1e-9)
    assert model.seconds(5_000_000) == pytest.approx(exact(ranks, 5_000_000))
    assert model.busbw(1e12) == pytest.approx(BANDWIDTH, rel=1e-3)


def test_each_number_of_ranks_has_a_model_of_its_own() -> None:
    models = fit_models([timing(ranks, size) for ranks in (2, 3) for size in SIZES])
    assert [model.ranks for model in models] == [2, 3]


def test_the_error_says_how_far_times_are_from_the_model() -> None:
    factors = (1.1, 0.9, 1.1)
    (model,) = fit_models([timing(2, size, factor) for size, factor in zip(SIZES, factors, strict=True)])
    assert model.error is not None
    assert 0.02 < model.error < 0.1
    assert model.worst is not None
    assert model.worst >= model.error


def test_two_sizes_leave_no_error_to_tell_and_one_size_no_model() -> None:
    (model,) = fit_models([timing(2, size) for size in SIZES[:2]])
    assert (model.error, model.worst) == (None, None)
    assert fit_models([timing(2, SIZES[0])]) == []
    assert fit_models([]) == []


def test_alpha_is_never_below_nothing_and_a_time_that_shrinks_with_size_has_no_model() -> None:
    steep = [Timing(ranks=2, bytes=size, seconds=1e-12 * size**1.5, count=1) for size in SIZES]
    (model,) = fit_models(steep)
    assert model.alpha_s == 0
    assert fit_models([Timing(ranks=2, bytes=size, seconds=1 / size, count=1) for size in SIZES]) == []


def record_of(folder: Path) -> TraceMaker:
    run, at = TraceMaker(folder), 0.0
    for size in (250, 10_000):
        for turn in range(3):
            took = 1e3 * exact(2, 4 * size) * (9 if turn == 0 else 1)
            for rank in range(2):
                run.call(rank, "all_reduce", at + rank, at + 1 + took, [[0.0] * size])
            at += took + 10
    return run


def test_the_first_all_reduce_of_a_size_is_left_out_and_waiting_for_a_late_rank_does_not_count(tmp_path: Path) -> None:
    found = timings_of(match_steps(read_trace(record_of(tmp_path / "r").record())))
    assert [(one.ranks, one.bytes, one.count) for one in found] == [(2, 1_000, 2), (2, 40_000, 2)]
    assert [one.seconds for one in found] == [pytest.approx(exact(2, one.bytes), rel=1e-3) for one in found]


def test_all_reduces_that_run_beside_one_another_are_left_out(tmp_path: Path) -> None:
    run = TraceMaker(tmp_path / "r")
    for rank in range(2):
        run.call(rank, "all_reduce", 0, 10, [[0.0] * 10])
        run.call(rank, "all_reduce", 5, 20, [[0.0] * 20])
        run.call(rank, "all_reduce", 30, 40, [[0.0] * 30])
    assert [one.bytes for one in timings_of(match_steps(read_trace(run.record())))] == [120]


def test_a_step_of_training_lies_between_what_the_model_says_with_and_without_overlap(tmp_path: Path) -> None:
    run = record_of(tmp_path / "r")
    took = 1e3 * exact(2, 40_000)
    for rank in range(2):
        for step in range(3):
            at = 1000.0 + step * (20 + took)
            run.mark(rank, "step", at, at + 1)
            run.call(rank, "all_reduce", at + 11, at + 11 + took, [[0.0] * 10_000])
    trace = read_trace(run.record())
    pace = pace_of(trace, match_steps(trace))
    assert pace.step_s == pytest.approx((20 + took) / 1e3, rel=1e-3)
    assert pace.own_s == pytest.approx(0.020, rel=1e-3)
    assert pace.modelled_s == pytest.approx(took / 1e3, rel=0.05)
    assert pace.overlap == pytest.approx(0, abs=1e-6)
    assert pace.bounds_s is not None
    assert pace.bounds_s[0] <= pace.step_s <= pace.bounds_s[1] * 1.05


def test_the_views_tell_runs_with_and_without_a_model(tmp_path: Path) -> None:
    trace = read_trace(record_of(tmp_path / "r").record())
    empty = read_trace(TraceMaker(tmp_path / "e").record())
    paces = {"20261101-101010-<b>": pace_of(trace, match_steps(trace)), "e": pace_of(empty, [])}
    said = network_text(paces, Style(colour=False))
    assert golden(1) in said
    assert "50 µs" in said
    assert network_json(paces)[0]["models"][0]["ranks"] == 2
