"""Where the time of a rank went."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.features.stragglers.timing import covered_s, share_of
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_the_time_before_the_process_group_is_not_counted(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    made.mark(0, "init_process_group", 0, 600)
    made.call(0, "all_reduce", 700, 1000, [[1.0]], [[1.0]])
    evidence = read_evidence(made.record())
    assert share_of(evidence.trace.ranks[0], evidence.step_of)[0].total == pytest.approx(0.4)


def test_buckets_run_beside_backward_until_the_last_is_issued(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    made.mark(0, "backward", 0, 100)
    for begin, end in ((20, 70), (60, 100)):
        made.call(0, "all_reduce", begin, end, [[1.0]], [[1.0]], **{"async": True})
    evidence = read_evidence(made.record())
    share, hidden_s = share_of(evidence.trace.ranks[0], evidence.step_of)
    assert (share.communicating, hidden_s) == pytest.approx((0.04, 0.04))


def test_spans_that_overlap_count_once() -> None:
    assert covered_s([(0, 2), (1, 3), (5, 6), (5.5, 5.7)]) == 4


def test_polling_for_a_handle_is_waiting_from_the_wait_on(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank, begin in ((0, 0), (1, 600)):
        made.call(rank, "all_reduce", begin, 800, [[1.0]], [[2.0]], **{"async": True})
        made.line(rank, "wait", 700 if rank else 400, e=0, at="train.py:9")
        made.line(rank, "wait", 800, e=1)
        made.line(rank, "mark", 1000, n="end", e=0)
    evidence = read_evidence(made.record())
    (first, hidden_s), (second, _) = (share_of(rank, evidence.step_of) for rank in evidence.trace.ranks.values())
    assert (first.waiting, first.communicating, hidden_s) == pytest.approx((0.2, 0.2, 0.4), abs=1e-6)
    assert (second.waiting, second.communicating) == pytest.approx((0.0, 0.1), abs=1e-6)
    assert (first.unknown, second.unknown) == (0.0, 0.0)
