"""Diagnoses held against the truth: who was named, for what, and which innocent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence
from lab.features.score.verb import score_run, score_runs, score_text
from lab.node.messages.agent import Connections, Exited, Halted, Started
from lab.record.events import Clock, Event, NodeLost, NodeTroubled, TimedOut
from lab.record.layout import RESULT
from lab.record.read import Record
from lab.record.result import Culprit, Expectation
from lab.report.style import Style
from tests.features.score.injected import AT, broken_run, without_faults
from tests.golden import golden

_PEER_LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:4"

_LOADER = "DataLoader worker (pid 12) is killed by signal: Killed."


def _ended(rank: int, at: float, **more: Any) -> Exited:
    return Exited(rank, AT + at, f"node{rank}", **{"code": 1, **more})


def _lost_peer(rank: int, at: float) -> Exited:
    return _ended(rank, at, error=_PEER_LOST, traceback=f"Traceback (most recent call last):\n{_PEER_LOST}")


def _silence() -> list[Event]:
    ways = [(0, 2), (2, 0), (1, 2), (2, 1)]
    return [Connections(AT + 1, f"node{one}", "r", f"node{other}", 1, silent_s=0.9, answers=False)
            for one, other in ways]  # fmt: skip


_BROKEN: dict[str, tuple[dict[str, Any], list[Event], str]] = {
    "a killed node": (
        {"kill": "node2"},
        [NodeLost(AT + 0.2, "node2", "was killed (SIGKILL)"), _lost_peer(0, 0.3), _lost_peer(1, 0.3)],
        "node_lost",
    ),
    "a node whose network is gone": (
        {"kill": "node2"},
        [*_silence(), _lost_peer(0, 2), _lost_peer(1, 2), _lost_peer(2, 2.1)],
        "cut_off",
    ),
    "a paused node": (
        {"kill": "node2"},
        [NodeTroubled(AT + 0.5, "node2", "was paused"), _lost_peer(0, 2), _lost_peer(1, 2)],
        "node_paused",
    ),
    "a rank that a signal stopped": (
        {"kill": "node2"},
        [Halted(2, AT + 0.1, "node2", signal="SIGSTOP"), TimedOut(AT + 5, 5.0)],
        "stopped",
    ),
    "a rank that raised": (
        {"kill": "node2"},
        [_ended(2, 0.3, error="ValueError: no", raised=AT + 0.2), _lost_peer(0, 0.4), _lost_peer(1, 0.5)],
        "exception",
    ),
    "a rank that was killed": ({"kill": "node2"}, [_ended(2, 0.1, code=None, signal="SIGKILL")], "killed"),
    "a rank whose disk is full": (
        {"kill": "node2"},
        [_ended(2, 0.3, error="OSError: [Errno 28] No space left on device", raised=AT + 0.2)],
        "disk_full",
    ),
    "a DataLoader whose worker was killed": (
        {"kill": "node2"},
        [
            _ended(
                2, 0.3, error="RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", raised=AT + 0.2
            )
        ],
        "loader_killed",
    ),
}


@pytest.mark.parametrize("what", _BROKEN)
def test_a_verdict_is_the_same_where_nothing_on_record_tells_what_was_broken(tmp_path: Path, what: str) -> None:
    said, facts, cause = _BROKEN[what]
    started = [Started(rank, AT - 1, f"node{rank}") for rank in range(3)]
    record = broken_run(tmp_path / "run", said, *started, *facts)
    told = judge_evidence(read_evidence(record))
    assert told == judge_evidence(read_evidence(without_faults(record)))
    assert told.culprit is not None
    assert (told.culprit.node, told.culprit.cause) == ("node2", cause)


def test_a_run_is_marked_by_who_was_named_for_what(tmp_path: Path) -> None:
    said, facts, _ = _BROKEN["a killed node"]
    [right] = score_run(broken_run(tmp_path / "right", said, *facts))
    assert (right.culprit, right.right_kind, right.detected_s, right.missed) == ("right", True, 0.2, False)
    other = Culprit(rank=2, node="node2", error="it was slow", cause="late")
    [kind] = score_run(broken_run(tmp_path / "kind", said, *facts, culprit=other))
    assert (kind.culprit, kind.right_kind, kind.missed) == ("right", False, True)
    innocent = Culprit(rank=0, node="node0", error="raised", cause="exception")
    [wrong] = score_run(broken_run(tmp_path / "wrong", said, *facts, culprit=innocent))
    assert (wrong.culprit, wrong.accused) == ("wrong", "rank 0")
    [nobody] = score_run(broken_run(tmp_path / "nobody", said, *facts, culprit=None, verdict="failed"))
    assert nobody.culprit == "right"


def test_who_names_the_link_that_was_broken_is_right_and_who_names_another_is_not(tmp_path: Path) -> None:
    text = "RuntimeError: [pair.cc:537] Read error [10.0.0.2]:4: Connection reset by peer"
    clocks = [Clock(AT - 1, f"node{rank}", address=f"10.0.0.{rank}") for rank in range(3)]
    facts = [
        *clocks,
        _ended(1, 0.3, error=text, traceback=f"Traceback (most recent call last):\n{text}", raised=AT + 0.2),
    ]
    for kind, said, outcome in (
        ("reset", "node1 - node2", "right"),
        ("reset", "node2", "right"),
        ("reset", "node0 - node2", "wrong"),
        ("disconnect", "node2", "right"),
        ("disconnect", "node0", "wrong"),
    ):
        record = broken_run(tmp_path / kind / said, {kind: said}, *facts)
        culprit = record.result().culprit
        assert culprit is not None
        assert (culprit.link, culprit.rank, culprit.cause) == ("node1 - node2", None, "connection_reset")
        [mark] = score_run(record)
        assert (mark.culprit, mark.right_kind) == (outcome, (kind, outcome) == ("reset", "right"))


def test_where_nothing_came_of_it_and_nobody_is_named_nothing_is_missed(tmp_path: Path) -> None:
    facts = [_ended(rank, 0.5, code=0) for rank in range(3)]
    [mark] = score_run(broken_run(tmp_path / "run", {"kill": "node2"}, *facts))
    assert (mark.culprit, mark.missed) == ("unharmed", False)


def test_a_run_without_faults_is_not_scored(tmp_path: Path) -> None:
    record = without_faults(broken_run(tmp_path / "run", {"kill": "node2"}))
    assert score_run(record) == []
    assert score_text(score_runs([record]), Style(colour=False)) == golden(1)


def test_the_table_has_a_line_for_each_kind_and_every_miss(tmp_path: Path) -> None:
    said, facts, _ = _BROKEN["a killed node"]
    innocent = Culprit(rank=0, node="node0", error="raised", cause="exception")
    records = [
        broken_run(tmp_path / "a", said, *facts),
        broken_run(tmp_path / "b", said, *facts, culprit=innocent, reason="rank 0 raised"),
    ]
    found = score_runs(records)
    assert [(row.kind, row.faults, row.right, row.accused) for row in found.rows] == [("kill", 2, 1, 1), ("", 2, 1, 1)]
    text = score_text(found, Style(colour=False))
    assert text.splitlines()[1].split()[:5] == ["kill", "2", "1", "of", "2"]
    assert "2 runs; innocent accused: 1" in text
    assert text.endswith(golden(1))
    assert [mark["run"] for mark in found.to_json()["misses"]] == ["b"]


def test_a_run_that_fails_for_want_of_a_fault_alone_has_missed_nobody(tmp_path: Path) -> None:
    record = broken_run(tmp_path / "run", {"pause": "node0"}, *(_ended(rank, 0.5, code=0) for rank in range(3)))
    never = Expectation(what="fault rate node0 10mbit", expected="at 1 s", got="(node0 is paused)", met=False)
    for expectations, outcome in (((never,), "unharmed"), ((never, replace(never, what="exit")), "nobody")):
        result = replace(record.result(), verdict="failed", expectations=expectations)
        (record.path / RESULT).write_text(json.dumps(result.to_json()))
        [mark] = score_run(Record(path=record.path))
        assert mark.culprit == outcome
