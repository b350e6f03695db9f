"""A run in a terminal and in a pipe."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lab.features.watch.now import Follower, Happening, Now, RankNow, Watched
from lab.features.watch.verb import Lines, Screen, now_lines
from lab.report.style import Style
from tests.features.watch.growing import ORIGIN, Growing
from tests.golden import golden

PLAIN = Style(colour=False, width=100)
RANKS = (
    RankNow(rank=0, node="node0", state="inside", activity="in all_reduce #3", location="train.py:7", since_s=1.23,
            waits_for=(1, 2)),
    RankNow(rank=1, node="node1", state="outside", activity="in backward", since_s=0.01),
    RankNow(rank=2, node="node2", state="ended", activity="exit 1", bad=True),
)  # fmt: skip
NOW = Now(run="r", scenario="train", engine="local", ranks=RANKS, elapsed_s=12.34)


def test_a_rank_is_a_line_with_its_call_how_long_and_for_whom_it_waits():
    assert now_lines(NOW, PLAIN, 24) == [
        "train  12.3 s  local",
        golden(1),
        golden(2),
        "rank 2   node2 exit 1",
    ]


@pytest.mark.parametrize("width", [10, 30, 50])
def test_no_line_is_wider_than_a_narrow_terminal(width: int):
    lines = now_lines(NOW, Style(colour=False, width=width), 24)
    assert len(lines) == 4
    assert all(len(line) < width for line in lines)
    assert "node0" not in lines[1]


def test_more_ranks_than_lines_are_counted():
    many = replace(NOW, ranks=tuple(replace(RANKS[1], rank=rank, location=f"t.py:{rank}") for rank in range(50)))
    lines = now_lines(many, PLAIN, 10)
    assert len(lines) == 10
    assert lines[-1] == golden(1)


def test_more_ranks_than_lines_share_one_where_they_do_the_same_and_the_odd_one_comes_first():
    ranks = [
        replace(RANKS[0], rank=rank, node=f"node{rank}", since_s=rank / 10, waits_for=(77,)) for rank in range(128)
    ]
    ranks[77] = replace(RANKS[1], rank=77, node="node77")
    wide = Style(colour=False, width=200)
    assert [" ".join(line.split()) for line in now_lines(replace(NOW, ranks=tuple(ranks)), wide, 24)] == [
        "train 12.3 s local",
        golden(1),
        golden(2),
    ]


def test_step_by_step_the_keys_are_named():
    held = replace(NOW, stepping=True, next="all_reduce #4")
    assert now_lines(held, PLAIN, 24)[-1] == golden(1)


def test_what_a_script_named_does_not_act_on_the_terminal():
    evil = replace(NOW, scenario="a\x1b[2J\nb", ranks=(replace(RANKS[0], location="x\x07\n.py:1"),))
    assert not [char for line in now_lines(evil, PLAIN, 24) for char in line if not char.isprintable()]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_output_scrolls_by_above_the_ranks_and_the_end_leaves_the_terminal_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lab.features.watch.verb.style_for", lambda _: PLAIN)
    run, stream = Growing(tmp_path / "run", 1), Terminal()
    run.prints(0, b"hello\n", 5)
    follower, screen = Follower(run.record), Screen(stream)
    for at in (1, 2):
        screen.show(follower.poll(ORIGIN + at)[0], follower)
    shown, wiped = stream.getvalue(), "\r\x1b[2K\x1b[1A\r\x1b[2K"
    assert shown.count("rank 0   | hello\n") == 1
    assert shown.count(wiped) == 1  # two lines are drawn anew
    screen.close()
    assert stream.getvalue().endswith(wiped)
    run.end()


def test_step_by_step_the_next_step_is_drawn_above_the_ranks_and_stays_once_it_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lab.features.watch.verb.style_for", lambda _: PLAIN)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((100, 40)))
    run, stream = Growing(tmp_path / "run", 2), Terminal()
    follower, screen, watched = Follower(run.record, stepping=True), Screen(stream), Watched(step=True)

    def shown() -> str:
        run.write()
        before = len(stream.getvalue())
        screen.show(watched.update(follower.poll(ORIGIN + 1)[0], follower), follower)
        return stream.getvalue()[before:]

    facts = {"seq": 1, "g": "0", "red": "SUM", "in": [["float32", [1]]], "iv": [[1.0]], "at": "train.py:10"}
    for rank in range(2):
        run.made.line(rank, "hold", 10, i=1, op="all_reduce", **facts)
    held = shown()
    assert held.index("step 1: all_reduce #1") < held.index("rank 0  │ 1.0") < held.index("held before all_reduce #1")
    assert "──▶ not yet" in held
    for rank in range(2):
        run.made.call(rank, "all_reduce", 20, 30, [[1.0]], [[2.0]], red="SUM")
    assert shown().count("──▶ │ 2.0") == 2
    assert "step 1" not in shown()
    run.end()


def test_in_a_pipe_lines_are_in_the_order_of_time_though_they_came_late(tmp_path: Path):
    run, stream = Growing(tmp_path / "run", 2), io.StringIO()
    follower, lines = Follower(run.record), Lines(stream, as_json=True, late_s=0.4)
    run.made.call(0, "barrier", 100, None)
    run.write()
    lines.show(follower.poll(ORIGIN + 0.2)[0], follower)
    run.made.call(1, "barrier", 50, None)
    run.write()
    lines.show(follower.poll(ORIGIN + 0.3)[0], follower)
    lines.close()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["rank"]) for one in told] == [
        ("started", 0), ("started", 1), ("begin", 1), ("begin", 0),
    ]  # fmt: skip
    assert told[2]["text"] == golden(1)
    run.end()


def test_what_happens_to_many_ranks_at_once_is_one_line_and_to_the_odd_one_another(tmp_path: Path):
    out = io.StringIO()
    lines = Lines(out, as_json=False, late_s=0.0)
    follower = Follower(Growing(tmp_path, world_size=2).record)
    follower.happened = [
        Happening(0.5, "begin", rank, "enters all_reduce #1" if rank != 17 else "enters barrier #1")
        for rank in range(32)
    ]
    lines.show(replace(NOW, elapsed_s=1.0), follower)
    lines.close()
    assert [" ".join(line.split()) for line in out.getvalue().splitlines()] == [
        golden(1),
        "0.500 rank 17 enters barrier #1",
    ]
