from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.features.watch.tail import Place, Whereabouts
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
ORIGIN = 1_700_000_000.0


def look(made: TraceMaker) -> dict[int, Place]:
    return Whereabouts(made.record(stop=False)).look()


def words(made: TraceMaker) -> dict[int, str]:
    return {rank: place.words for rank, place in look(made).items()}


def test_a_rank_is_in_the_call_that_has_not_ended(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "all_reduce", 10, None, [[1.0]], at="train.py:41")
    made.call(1, "all_reduce", 3, 4, [[1.0]], at="train.py:39")
    found = look(made)
    assert found[0] == Place(0, "all_reduce", "train.py:41", pytest.approx(ORIGIN + 0.010))
    assert found[1] == Place(1, "", "train.py:39", pytest.approx(ORIGIN + 0.004))
    assert [place.words for place in found.values()] == ["all_reduce train.py:41", "in no call since train.py:39"]


def test_a_call_with_a_handle_holds_nobody_up_but_waiting_for_it_does(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 1, None, [[1.0]], at="train.py:7", **{"async": True})
    made.line(1, "wait", 2, e=0, at="train.py:9")
    made.line(2, "wait", 2, e=0, at="train.py:9")
    made.line(2, "wait", 3, e=1)
    assert words(made) == {0: "in no call since train.py:7", 1: "wait train.py:9", 2: "in no call since train.py:9"}


def test_messages_that_are_sent_without_waiting_hold_nobody_up(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "recv", 1, None, (), [[1.0]], peer=1, via="batch_isend_irecv", at="p.py:3")
    made.call(1, "recv", 1, None, (), [[1.0]], peer=0, via="recv", at="p.py:4")
    assert words(made) == {0: "in no call since p.py:3", 1: "recv p.py:4"}


def test_the_innermost_phase_is_told_where_no_call_holds_the_rank_up(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.line(rank, "mark", 1, n="forward", e=0, at="train.py:20")
    made.line(0, "mark", 2, n="loss", e=0, at="loss.py:3")
    made.mark(1, "loss", 2, 3, at="loss.py:3")
    made.mark(2, "loss", 2, 3, at="loss.py:3")
    made.line(2, "mark", 4, n="forward", e=1)
    assert words(made) == {0: "loss loss.py:3", 1: "forward train.py:20", 2: "in no call since loss.py:3"}


def test_looking_for_a_store_is_told_as_what_the_script_called(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.line(0, "mark", 1, n="init_process_group", e=0, at="train.py:5")
    for rank in range(2):
        made.line(rank, "store", 2, e=0, host="10.0.0.1", port=1, rank=0, world=2, at="train.py:5")
    assert words(made) == {0: "init_process_group train.py:5", 1: "TCPStore train.py:5"}


def test_before_its_first_call_and_after_its_end_a_rank_is_in_none(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.line(1, "stop", 5)
    assert words(made) == {0: "no call yet", 1: "ended"}


def test_what_is_not_on_record_is_not_told(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    made.line(0, "cut", 5, why="too much")
    record = made.record(stop=False)
    (record.path / TRACE / rank_trace(1)).unlink()
    (record.path / TRACE / rank_trace(2)).write_text('{"k":"begin"')
    assert Whereabouts(record).look() == {}


def test_a_trace_is_read_on_as_it_grows(tmp_path: Path) -> None:
    record = TraceMaker(tmp_path / "run", 1).record(stop=False)
    followed = Whereabouts(record)
    assert followed.look()[0].words == "no call yet"
    begin = _line("begin", 1, i=1, op="barrier", at="a.py:1")
    _append(record, begin[:20])
    assert followed.look()[0].words == "no call yet"
    _append(record, begin[20:])
    assert followed.look()[0].words == "barrier a.py:1"
    _append(record, _line("end", 2, i=1))
    assert followed.look()[0].words == "in no call since a.py:1"


def test_of_a_rank_that_calls_very_much_the_last_calls_tell(tmp_path: Path) -> None:
    record = TraceMaker(tmp_path / "run", 1).record(stop=False)
    followed = Whereabouts(record)
    followed.look()
    pairs = (
        _line("begin", n, i=n, op="barrier", at="a.py:1") + _line("end", n, i=n, pad="x" * 500) for n in range(1, 4000)
    )
    _append(record, b"".join(pairs) + _line("begin", 5000, i=5000, op="all_reduce", at="a.py:2"))
    assert followed.look()[0].words == "all_reduce a.py:2"


def test_what_is_over_is_forgotten_and_what_holds_a_rank_up_is_not(tmp_path: Path) -> None:
    record = TraceMaker(tmp_path / "run", 1).record(stop=False)
    followed = Whereabouts(record)
    _append(record, _line("begin", 1, i=1, op="recv", at="a.py:1", via="recv"))
    for round_ in range(1, 11):
        numbers = range(round_ * 100, round_ * 100 + 99)
        pairs = (_line("begin", n, i=n, op="barrier", at="a.py:2") + _line("end", n, i=n) for n in numbers)
        _append(record, b"".join(pairs))
        followed.look()
    assert followed.look()[0].words == "recv a.py:1"
    assert len(followed._tail.trace.ranks[0].calls) <= 51


@pytest.mark.parametrize(
    "line",
    [
        *({"k": "begin", "t": 1, "op": "x"}, {"k": "begin", "t": -1, "i": 1, "op": "x"}, {"k": "mark", "t": 1}),
        *([1], {"k": ["begin"], "t": 1}, {"k": "end", "t": 1, "i": "1"}, {"k": "begin", "t": 1e400, "i": 1, "op": "x"}),
    ],
)
def test_lines_that_no_recorder_writes_are_left_out(tmp_path: Path, line: Any) -> None:
    record = TraceMaker(tmp_path / "run", 1).record(stop=False)
    _append(record, json.dumps(line).encode() + b"\n" + _line("begin", 1, i=1, op="barrier", at="a.py:1"))
    assert Whereabouts(record).look()[0].words == "barrier a.py:1"


def _line(kind: str, at_ms: float, **fields: Any) -> bytes:
    return json.dumps({"k": kind, "t": int(5_000_000_000 + at_ms * 1e6), **fields}).encode() + b"\n"


def _append(record: Record, data: bytes) -> None:
    with (record.path / TRACE / rank_trace(0)).open("ab") as file:
        file.write(data)
