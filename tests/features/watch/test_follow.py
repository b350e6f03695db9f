"""What is said of a run that goes on: who is where, who waits for whom, what has happened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.features.watch import tail
from lab.features.watch.now import Follower, Now
from tests.features.watch.growing import ORIGIN, Growing
from tests.golden import golden


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Growing]:
    growing = Growing(tmp_path / "run")
    yield growing
    growing.end()


def look(follower: Follower, at_ms: float) -> Now:
    return follower.poll(ORIGIN + at_ms / 1e3)[0]


def test_who_is_inside_a_call_waits_for_those_who_have_not_come(run: Growing):
    run.made.call(0, "all_reduce", 10, None, [[1.0]], red="SUM", at="train.py:7")
    run.made.call(2, "all_reduce", 20, None, [[1.0]], red="SUM", at="train.py:7")
    run.write()
    now = look(Follower(run.record), 500)
    assert [(rank.state, rank.activity, rank.waits_for) for rank in now.ranks] == [
        ("inside", "in all_reduce #1", (1,)),
        ("outside", "in no call", ()),
        ("inside", "in all_reduce #1", (1,)),
    ]
    assert now.ranks[0].location == "train.py:7"
    assert now.ranks[0].since_s == pytest.approx(0.49)
    assert now.elapsed_s == pytest.approx(0.5)
    assert not now.over


def test_a_call_that_ends_is_over_at_the_next_look_and_what_happened_is_told_once(run: Growing):
    follower = Follower(run.record)
    for rank in range(3):
        run.made.call(rank, "all_reduce", 10 + rank, None, [[1.0]], red="SUM")
    run.write()
    look(follower, 20)
    assert [one.text for one in follower.happened if one.what == "begin"] == [golden(1)] * 3
    for rank in range(3):
        run.made.line(rank, "end", 30 + rank, i=1, ov=[[3.0]])
    run.write()
    now = look(follower, 40)
    assert {rank.state for rank in now.ranks} == {"outside"}
    assert [(one.what, one.rank) for one in follower.happened] == [("end", 0), ("end", 1), ("end", 2)]
    assert [call.state for call in now.ranks[0].recent] == ["completed"]
    look(follower, 50)
    assert follower.happened == []


def test_a_message_is_waited_for_by_whoever_receives_it(run: Growing):
    run.made.call(1, "recv", 10, None, peer=0, tag=0, in_place=False)
    run.write()
    now = look(Follower(run.record), 100)
    assert (now.ranks[1].activity, now.ranks[1].waits_for) == (golden(1), (0,))


def test_a_call_with_a_handle_holds_nobody_up_until_it_is_waited_for(run: Growing):
    run.made.call(0, "all_reduce", 10, None, [[1.0]], red="SUM", **{"async": True})
    run.write()
    follower = Follower(run.record)
    assert look(follower, 20).ranks[0].state == "outside"
    run.made.line(0, "wait", 30, e=0, at="train.py:12")
    run.write()
    now = look(follower, 40).ranks[0]
    assert (now.state, now.waits_for) == ("inside", (1, 2))


def test_polling_for_long_is_told_once(run: Growing):
    run.made.call(0, "barrier", 10, None)
    run.write()
    follower = Follower(run.record)
    look(follower, 500)
    look(follower, 1500)
    assert [one.text for one in follower.happened] == [golden(1)]
    look(follower, 2500)
    assert follower.happened == []


def test_a_rank_that_is_held_is_not_inside_and_not_waited_for_in_vain(run: Growing):
    facts = {"async": False, "in": [["float32", [1]]], "iv": [[1.0]], "ib": 4, "at": "train.py:7", "red": "SUM"}
    for rank in (0, 1):
        run.made.line(rank, "hold", 10, i=1, op="all_reduce", g="0", seq=1, **facts)
    run.write()
    follower = Follower(run.record)
    now = look(follower, 20)
    assert [rank.activity for rank in now.ranks] == ["held before all_reduce #1"] * 2 + ["in no call"]
    assert [step.missing for step in follower.ahead] == [(2,)]
    assert follower.steps == []
    run.made.call(0, "all_reduce", 30, None, [[1.0]], red="SUM")
    run.write()
    now = look(follower, 40)
    assert [rank.state for rank in now.ranks] == ["inside", "held", "outside"]
    assert now.ranks[0].waits_for == (1, 2)


def test_what_ranks_print_is_told_in_whole_lines_without_what_acts_on_a_terminal(run: Growing):
    follower = Follower(run.record)
    run.prints(1, b"half a", 10)
    look(follower, 20)
    assert list(follower.lines) == []
    run.prints(1, b" line\n\x1b[2Jnext\rover\nrest", 30)
    look(follower, 40)
    assert [line.text for line in follower.lines] == ["half a line", "over"]
    follower.finish()
    assert [one.text for one in follower.happened] == ["rest"]


def test_how_a_rank_ended_is_said_and_whether_that_was_bad(run: Growing):
    run.event("exited", 0, 10, code=0)
    run.event("exited", 1, 20, code=3, error="ValueError: no")
    run.event("halted", 2, 30, signal="SIGSTOP")
    now = look(Follower(run.record), 50)
    assert [(rank.state, rank.activity, rank.bad) for rank in now.ranks] == [
        ("ended", "exit 0", False),
        ("ended", "exit 3: ValueError: no", True),
        ("halted", "stopped by SIGSTOP", False),
    ]


def test_the_end_has_the_verdict(run: Growing):
    follower = Follower(run.record)
    assert not look(follower, 10).over
    run.event("exited", 0, 900, code=0)
    run.end("failed", "rank 0 did it")
    look(follower, 2000)
    now = look(follower, 2000)
    assert (now.over, now.verdict, now.reason) == (True, "failed", "rank 0 did it")
    assert now.elapsed_s == pytest.approx(0.9)


def test_a_record_that_ends_without_a_result_says_so(tmp_path: Path):
    growing = Growing(tmp_path / "run")
    growing.end()
    (tmp_path / "run" / "result.json").unlink()
    follower = Follower(growing.record)
    look(follower, 10)
    assert look(follower, 10).remarks == (golden(1),)


def test_whatever_a_trace_holds_does_not_stop_the_view(run: Growing):
    bad = [
        {"k": ["begin"]},
        {"k": "begin", "i": "x"},
        {"k": "end", "i": []},
        {"k": "hold"},
        {"k": "hold", "i": -1, "op": 1},
    ]
    run.made.lines[1] += [{"t": 5_000_000_001 + i, **line} for i, line in enumerate(bad)]
    run.made.call(0, "barrier", 10, None)
    run.write()
    now = look(Follower(run.record), 20)
    assert [rank.state for rank in now.ranks] == ["inside", "outside", "outside"]


def test_calls_that_are_over_are_forgotten_and_messages_still_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tail, "_KEPT_CALLS", 10)
    monkeypatch.setattr(tail, "_KEPT_STEPS", 2)
    run = Growing(tmp_path / "run", 2)
    follower = Follower(run.record)
    for number in range(40):
        run.made.call(0, "send", 10 + number, 10.5 + number, [[1.0]], peer=1, tag=0)
        run.made.call(1, "recv", 10 + number, 10.5 + number, (), [[1.0]], peer=0, tag=0)
        run.write()
        look(follower, 100)
    run.made.call(1, "recv", 60, None, peer=0, tag=0, in_place=False)
    run.write()
    now = look(follower, 200)
    assert sum(len(rank.calls) for rank in follower.tail.trace.ranks.values()) < 25
    assert now.ranks[1].waits_for == (0,)
    assert now.remarks == ()
    assert follower.steps[-1].number == 41
    run.end()


def test_a_rank_that_calls_faster_than_can_be_read_is_followed_near_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tail, "_BEHIND_BYTES", 20_000)
    monkeypatch.setattr(tail, "_POLL_BYTES", 8_000)
    run = Growing(tmp_path / "run", 2)
    follower = Follower(run.record)
    look(follower, 1)
    for number in range(300):
        run.made.call(0, "all_reduce", 10 + number, 10.5 + number, [[1.0]], [[1.0]], red="SUM")
    for number in range(3):
        run.made.call(1, "all_reduce", 10 + number, 10.5 + number, [[1.0]], [[1.0]], red="SUM")
    run.write()
    now, more = follower.poll(ORIGIN + 1)
    while more:
        now, more = follower.poll(ORIGIN + 1)
    assert golden(1) in now.remarks[0]
    assert now.ranks[0].recent[-1].text == "all_reduce #300"
    assert all(not step.missing or step.seq > 3 for step in follower.steps)  # rank 0 was at those that rank 1 is at
    run.end()


def test_a_view_is_plain_data(run: Growing):
    run.made.call(0, "barrier", 10, None)
    run.write()
    data = json.loads(json.dumps(asdict(look(Follower(run.record), 20))))
    assert data["ranks"][0]["recent"][0]["text"] == "barrier #1"


def test_names_of_any_length_stay_short_in_the_view(run: Growing):
    long = "x" * 100_000
    run.made.call(0, long, 10, None, at=f"{long}.py:1")
    run.event("exited", 1, 20, code=1, error=long)
    run.write()
    now = look(Follower(run.record), 30)
    assert len(json.dumps(asdict(now))) < 5000


def test_of_a_rank_whose_calls_are_not_on_record_no_more_is_said_than_that_it_runs(run: Growing):
    run.made.line(0, "cut", 10, why="there is no room")
    run.made.mark(1, "init_process_group", 10, 20)
    run.made.line(2, "mark", 10, n="backward", e=0, at="train.py:3")
    run.write()
    (run.record.path / "trace" / "rank1.jsonl").unlink()
    now = look(Follower(run.record), 50)
    assert [rank.activity for rank in now.ranks] == ["running", "running", "in backward"]
    assert now.remarks == (golden(1),)


def test_a_call_that_fails_because_the_lab_stops_the_ranks_was_never_done(run: Growing):
    for rank in (0, 1):
        run.made.call(rank, "barrier", 10, None)
    run.made.line(1, "end", 15, i=1, err="a peer was lost")
    run.write()
    follower = Follower(run.record)
    look(follower, 18)
    run.event("timed out", 0, 20)
    run.made.line(0, "end", 30, i=1, err="a peer was lost")
    run.write()
    now = look(follower, 40)
    assert [rank.recent[0].state for rank in now.ranks[:2]] == ["inside", "failed"]
    assert "end" not in [one.what for one in follower.happened]
