"""The critical path: which own work and which communication a run's length is made of."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from lab.diagnosis.evidence import Evidence, read_evidence
from lab.features.stragglers.findings import find_critical_path
from lab.features.stragglers.timing import critical_path, parts_of
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit

Told = list[tuple[int, int, int, bool]]


def path_of(evidence: Evidence) -> Told:
    """Rank, beginning and end in milliseconds, and whether it is communication, of each piece."""
    found = critical_path(evidence.trace, evidence.step_of)
    return [(one.rank, round(one.begin * 1e3), round(one.end * 1e3), one.within) for one in found]


def ended(maker: TraceMaker, *ends_ms: float) -> Evidence:
    for rank, end in enumerate(ends_ms):
        maker.line(rank, "mark", end, n="end", e=0)
    return read_evidence(maker.record())


def test_the_path_goes_through_who_came_last(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for rank, begin in ((0, 100), (1, 400)):
        maker.call(rank, "all_reduce", begin, 500, [[1.0]], [[2.0]], at="train.py:7")
    for rank, begin in ((0, 900), (1, 600)):
        maker.call(rank, "all_reduce", begin, 1000, [[1.0]], [[2.0]], at="train.py:8")
    evidence = ended(maker, 1000, 1100)
    assert path_of(evidence) == [
        (1, 0, 400, False), (0, 400, 500, True), (0, 500, 900, False), (1, 900, 1000, True), (1, 1000, 1100, False),
    ]  # fmt: skip
    [longest, *_] = parts_of(critical_path(evidence.trace, evidence.step_of))
    assert (longest.rank, longest.op, longest.source) in {
        (1, "all_reduce", "train.py:7"),
        (0, "all_reduce", "train.py:8"),
    }
    assert longest.share == pytest.approx(400 / 1100, abs=1e-3)


def test_the_path_is_as_long_as_the_run_and_has_no_gap(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 3)
    for turn in range(20):
        late = [(turn * 7 + rank * 5) % 13 for rank in range(3)]
        for rank in range(3):
            maker.call(rank, "all_reduce", turn * 30 + late[rank], turn * 30 + 20, [[1.0]], [[3.0]])
    told = path_of(ended(maker, 700, 650, 690))
    assert (told[0][1], told[-1][2]) == (0, 700)
    assert all(one[2] == other[1] for one, other in pairwise(told))


def test_who_receives_waits_for_the_sender_alone(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 3)
    maker.call(2, "send", 300, 310, [[1.0]], peer=0, tag=0)
    maker.call(0, "recv", 10, 320, [], [[1.0]], peer=2, tag=0)
    assert path_of(ended(maker, 400, 390, 330)) == [(2, 0, 300, False), (0, 300, 320, True), (0, 320, 400, False)]


def test_communication_beside_backward_is_on_the_path_only_where_backward_waits_for_it(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 1)
    maker.mark(0, "backward", 0, 100)
    for begin, end in ((20, 55), (60, 100)):
        maker.call(0, "all_reduce", begin, end, [[1.0]], [[1.0]], **{"async": True})
    assert path_of(ended(maker, 130)) == [(0, 0, 60, False), (0, 60, 100, True), (0, 100, 130, False)]


def test_the_path_begins_where_ranks_last_met_to_make_a_group(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for rank, came in ((0, 50), (1, 600)):  # rank 0 waits for rank 1 in new_group, which is no work of its own
        maker.mark(rank, "init_process_group", 0, 20)
        maker.mark(rank, "new_group", came, 610 + rank)
        maker.call(rank, "all_reduce", 700 - 20 * rank, 800, [[1.0]], [[2.0]], at="train.py:7")
    evidence = ended(maker, 900, 850)
    assert path_of(evidence) == [(0, 610, 700, False), (0, 700, 800, True), (0, 800, 900, False)]
    [found] = find_critical_path(evidence)
    assert found.sentence.startswith(golden(1))


@pytest.mark.parametrize("how", ["never done", "failed", "no trace", "cut short", "handles that nobody waited for"])
def test_a_path_that_is_not_known_is_not_told(tmp_path: Path, how: str) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for rank in (0, 1):
        more = {"async": True} if how.startswith("handles") else {}
        maker.call(rank, "all_reduce", 100, 300, [[1.0]], [[2.0]], **more)
    if how == "never done":
        maker.call(0, "all_reduce", 400, None, [[1.0]])
    elif how == "failed":
        index = maker.call(0, "all_reduce", 400, None, [[1.0]])
        maker.line(0, "end", 450, i=index, error="reset by peer")
    for rank in (0, 1):
        maker.line(rank, "mark", 900, n="end", e=0)
    record = maker.record(stop=how not in ("never done", "cut short"))
    if how == "no trace":
        (record.path / "trace" / "rank1.jsonl").unlink()
    evidence = read_evidence(record)
    assert critical_path(evidence.trace, evidence.step_of) == []
    assert [*find_critical_path(evidence)] == []


def test_the_sentence_names_the_largest_parts_and_blames_nobody(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for rank, begin in ((0, 100), (1, 800)):
        maker.call(rank, "all_reduce", begin, 900, [[1.0]], [[2.0]], at="train.py:7")
    [found] = find_critical_path(ended(maker, 1100, 950))
    assert found.sentence == (golden(1))
    assert (found.kind, found.ranks, found.lines, found.seconds) == ("time", (), ("train.py:7",), 1.1)
