"""Stragglers, and where the time of ranks went."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import Evidence, Explained, read_evidence
from lab.diagnosis.finding import Finding, FindingKind
from lab.features.stragglers.findings import TimeKind, explain_time, find_shares, find_straggler
from lab.features.stragglers.timing import share_of
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def steps(
    folder: Path, late_ms: list[float], *, every: float = 300.0, start_ms: float = 0.0, error_ms: float = 0.0
) -> Evidence:
    """Three ranks that meet once a turn; one of them comes late by so much."""
    made = TraceMaker(folder / "run", 3)
    for turn, late in enumerate([start_ms, *late_ms]):
        for rank in range(3):
            begin = turn * every + 10 + (late if rank == 1 else 0.0)
            made.call(rank, "all_reduce", begin, turn * every + 12 + late, [[1.0]], [[3.0]], at="train.py:25")
            made.mark(rank, "step", turn * every + 13 + late, turn * every + 14 + late)
    if error_ms:
        made.on_hosts(error_ms)
    return read_evidence(made.record())


@pytest.mark.parametrize(("error_ms", "found"), [(20.0, 1), (60.0, 0)])
def test_who_is_late_by_less_than_clocks_can_tell_is_no_straggler(tmp_path: Path, error_ms: float, found: int) -> None:
    assert len([*find_straggler(steps(tmp_path, [100.0] * 4, error_ms=error_ms))]) == found


def test_who_is_late_again_and_again_is_a_straggler_with_what_it_cost(tmp_path: Path) -> None:
    [found] = find_straggler(steps(tmp_path, [100.0] * 4))
    assert (found.kind, found.ranks, found.others, found.lines) == ("straggler", (1,), (0, 2), ("train.py:25",))
    assert told_facts(found) == {
        "each_s": 0.4,
        "share": 0.3076923076923077,
        "often": True,
        "last": 4,
        "steps": 4,
        "least_s": 0.09999999999999998,
        "most_s": 0.10000000000000009,
        "turns": 5,
    }
    assert told_facts(found) == {
        "each_s": 0.4,
        "share": 0.3076923076923077,
        "often": True,
        "last": 4,
        "steps": 4,
        "least_s": 0.09999999999999998,
        "most_s": 0.10000000000000009,
        "turns": 5,
    }
    assert told_facts(found) == {
        "each_s": 0.4,
        "share": 0.3076923076923077,
        "often": True,
        "last": 4,
        "steps": 4,
        "least_s": 0.09999999999999998,
        "most_s": 0.10000000000000009,
        "turns": 5,
    }
    assert found.seconds == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("kind", "ranks", "told"), [("left_early", (2,), 0), ("out_of_time", (2,), 1), ("in_flight", (), 1)]
)
def test_if_it_is_known_who_broke_the_run_nobody_is_named_for_being_late_before(
    tmp_path: Path, kind: str, ranks: tuple[int, ...], told: int
) -> None:
    cause = Finding(kind=FindingKind(kind), ranks=ranks)
    found = [*explain_time(Explained(steps(tmp_path, [100.0] * 4), [cause], ended_well=False))]
    assert sum(one.kind is TimeKind.STRAGGLER for one in found) == told


@pytest.mark.parametrize(
    ("late_ms", "why"),
    [
        ([1.5] * 40, "noise"),
        ([600.0, 1.0, 1.0, 1.0], "once is an accident"),
        ([100.0, 100.0], "too few steps"),
        ([5.0] * 6, "too little altogether"),
    ],
)
def test_what_is_no_straggler(tmp_path: Path, late_ms: list[float], why: str) -> None:
    assert [*find_straggler(steps(tmp_path, late_ms, every=1000.0))] == [], why


def test_who_is_late_now_and_then_is_told_with_how_often_and_by_how_much(tmp_path: Path) -> None:
    late_ms = [60.0 if turn in (3, 8, 9, 17, 22, 30) else 1.2 for turn in range(40)]
    [found] = find_straggler(steps(tmp_path, late_ms, every=100.0))
    assert (found.kind, found.ranks, found.others) == ("straggler", (1,), (0, 2))
    assert told_facts(found) == {
        "each_s": 0.36000000000000015,
        "share": 0.08997300809757075,
        "seldom": True,
        "last": 6,
        "steps": 40,
        "least_s": 0.05999999999999994,
        "most_s": 0.06000000000000005,
    }


def in_turns(folder: Path, late: dict[int, tuple[int, float]], ranks: int = 3) -> TraceMaker:
    """Ranks that meet 40 times, every 50 ms; at some turns one of them comes late by so many milliseconds."""
    made, at = TraceMaker(folder / "run", ranks), 0.0
    for turn in range(40):
        who, by = late.get(turn, (turn % ranks, 3.0))
        for rank in range(ranks):
            made.call(rank, "all_reduce", at + (by if rank == who else 0.0), at + by + 1, [[1.0]], [[3.0]], at="a.py:3")
        at += by + 10
    return made


@pytest.mark.parametrize(
    ("late", "found"),
    [
        (dict.fromkeys((4, 9, 12, 20, 31), (1, 50.0)), True),
        (dict.fromkeys((4, 9, 12, 20), (1, 50.0)), False),  # of three ranks any one has four of four now and then
        (dict.fromkeys((4, 9, 12), (1, 400.0)), True),  # it is most of the time, however few they are
        ({4: (1, 50.0), 9: (1, 50.0), 12: (0, 50.0), 20: (2, 50.0), 25: (1, 50.0), 31: (0, 50.0)}, False),
        (dict.fromkeys((4, 9, 12, 20, 31), (1, 50.0)) | {7: (2, 190.0)}, False),
    ],
)
def test_who_is_late_now_and_then_is_told_only_where_it_is_hardly_chance(
    tmp_path: Path, late: dict[int, tuple[int, float]], found: bool
) -> None:
    got = [*find_straggler(read_evidence(in_turns(tmp_path, late).record()))]
    assert [one.ranks for one in got] == ([(1,)] if found else [])


def test_a_garbage_collector_that_ran_while_others_waited_is_told(tmp_path: Path) -> None:
    late = dict.fromkeys((4, 9, 12, 20, 31), (2, 50.0))
    made, began = in_turns(tmp_path, late), {}
    at = 0.0
    for turn in range(40):
        began[turn] = at
        at += late.get(turn, (0, 3.0))[1] + 10
    for turn in late:
        made.line(2, "gc", began[turn] + 48, took=45_000_000, gen=2)
        made.line(1, "gc", began[turn] + 48, took=45_000_000, gen=2)  # while it waited: nobody waits for that
    [found] = find_straggler(read_evidence(made.record()))
    assert found.ranks == (2,)
    assert told_facts(found) == {
        "each_s": 0.25,
        "share": 0.33692722371967654,
        "seldom": True,
        "last": 5,
        "steps": 39,
        "least_s": 0.04999999999999999,
        "most_s": 0.050000000000000044,
        "usual_s": 0.0030000000000000027,
        "collected_s": 0.225,
        "collected_in": 5,
    }


def test_ranks_that_begin_at_different_times_are_no_stragglers(tmp_path: Path) -> None:
    assert [*find_straggler(steps(tmp_path, [0.5] * 6, every=2000.0, start_ms=1500.0))] == []


def test_ranks_that_are_late_in_turn_are_no_stragglers(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for turn in range(9):
        for rank in range(3):
            late = 100 if turn % 3 == rank else 0
            made.call(rank, "all_reduce", turn * 300 + late, turn * 300 + 102, [[1.0]], [[3.0]])
    assert [*find_straggler(read_evidence(made.record()))] == []


def test_a_source_that_broadcasts_late_is_the_straggler_even_if_it_is_not_last(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for turn in range(5):
        for rank, begin in enumerate((200, 0, 210)):
            made.call(rank, "broadcast", turn * 300 + begin, turn * 300 + 212, [[1.0]], [[3.0]], root=0)
    [found] = find_straggler(read_evidence(made.record()))
    assert found.ranks == (0,)


def test_time_is_own_work_waiting_or_communication(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "all_reduce", 100, 500, [[1.0]], [[3.0]])
    made.call(1, "all_reduce", 400, 500, [[1.0]], [[3.0]])
    for rank in (0, 1):
        made.line(rank, "mark", 1000, n="end", e=0)
    evidence = read_evidence(made.record())
    (first, _), (second, _) = (share_of(rank, evidence.step_of) for rank in evidence.trace.ranks.values())
    assert (first.total, first.waiting, first.communicating) == pytest.approx((1.0, 0.3, 0.1), abs=1e-6)
    assert first.own == pytest.approx(0.6, abs=1e-6)
    assert (second.waiting, second.communicating) == pytest.approx((0.0, 0.1), abs=1e-6)
    [found] = find_shares(evidence)
    assert told_facts(found) == {
        "shares": [
            {
                "rank": 0,
                "total": 1.000000001,
                "own": 0.6000000010000001,
                "waiting": 0.30000000000000004,
                "communicating": 0.09999999999999998,
                "unknown": 0.0,
            },
            {
                "rank": 1,
                "total": 1.000000001,
                "own": 0.9000000010000001,
                "waiting": 0.0,
                "communicating": 0.09999999999999998,
                "unknown": 0.0,
            },
        ]
    }


def test_what_nobody_was_seen_to_wait_for_is_called_unknown(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    made.call(0, "all_reduce", 100, 400, [[1.0]], [[1.0]], **{"async": True})
    made.line(0, "mark", 1000, n="end", e=0)
    evidence = read_evidence(made.record())
    share, _ = share_of(evidence.trace.ranks[0], evidence.step_of)
    assert (share.unknown, share.own) == pytest.approx((0.3, 0.7), abs=1e-6)
    [found] = find_shares(evidence)
    assert told_facts(found) == {
        "shares": [
            {
                "rank": 0,
                "total": 1.000000001,
                "own": 0.700000001,
                "waiting": 0.0,
                "communicating": 0.0,
                "unknown": 0.30000000000000004,
            }
        ]
    }


def test_each_rank_has_its_own_span(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank, end in ((0, 1000), (1, 500)):
        made.call(rank, "all_reduce", 100, 200, [[1.0]], [[2.0]])
        made.line(rank, "mark", end, n="end", e=0)
    [found] = find_shares(read_evidence(made.record()))
    assert told_facts(found) == {
        "shares": [
            {
                "rank": 0,
                "total": 1.000000001,
                "own": 0.9000000010000001,
                "waiting": 0.0,
                "communicating": 0.1,
                "unknown": 0.0,
            },
            {"rank": 1, "total": 0.500000001, "own": 0.400000001, "waiting": 0.0, "communicating": 0.1, "unknown": 0.0},
        ]
    }
    assert told_facts(found) == {
        "shares": [
            {
                "rank": 0,
                "total": 1.000000001,
                "own": 0.9000000010000001,
                "waiting": 0.0,
                "communicating": 0.1,
                "unknown": 0.0,
            },
            {"rank": 1, "total": 0.500000001, "own": 0.400000001, "waiting": 0.0, "communicating": 0.1, "unknown": 0.0},
        ]
    }
