"""The diagnosis names who was broken on purpose without a look at what was broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence
from lab.node.messages.agent import Connections, Exited, Halted, Started
from lab.record.events import Event, Fault, NodeLost, NodeTroubled, TimedOut, event_line
from lab.record.layout import EVENTS, LOGS, PLAN
from lab.record.read import Record

_AT = 1_700_000_000.0
"""When node2 was killed."""
_PEER_LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:4"


def _ended(rank: int, at: float, **more: Any) -> Exited:
    return Exited(rank, _AT + at, f"node{rank}", **{"code": 1, **more})


def _lost_peer(rank: int, at: float) -> Exited:
    return _ended(rank, at, error=_PEER_LOST, traceback=f"Traceback (most recent call last):\n{_PEER_LOST}")


def _silence() -> list[Event]:
    ways = [(0, 2), (2, 0), (1, 2), (2, 1)]
    return [Connections(_AT + 1, f"node{one}", "r", f"node{other}", 1, silent_s=0.9, answers=False)
            for one, other in ways]  # fmt: skip


_BROKEN: dict[str, tuple[list[Event], str]] = {
    "a killed node": (
        [NodeLost(_AT + 0.2, "node2", "was killed (SIGKILL)"), _lost_peer(0, 0.3), _lost_peer(1, 0.3)],
        "node_lost",
    ),
    "a node whose network is gone": (
        [*_silence(), _lost_peer(0, 2), _lost_peer(1, 2), _lost_peer(2, 2.1)],
        "cut_off",
    ),
    "a paused node": (
        [NodeTroubled(_AT + 0.5, "node2", "was paused"), _lost_peer(0, 2), _lost_peer(1, 2)],
        "node_paused",
    ),
    "a rank that a signal stopped": (
        [Halted(2, _AT + 0.1, "node2", signal="SIGSTOP"), TimedOut(_AT + 5, 5.0)],
        "stopped",
    ),
    "a rank that raised": (
        [_ended(2, 0.3, error="ValueError: no", raised=_AT + 0.2), _lost_peer(0, 0.4), _lost_peer(1, 0.5)],
        "exception",
    ),
    "a rank that was killed": ([_ended(2, 0.1, code=None, signal="SIGKILL")], "killed"),
    "a rank whose disk is full": (
        [_ended(2, 0.3, error="OSError: [Errno 28] No space left on device", raised=_AT + 0.2)],
        "disk_full",
    ),
    "a DataLoader whose worker was killed": (
        [
            _ended(
                2, 0.3, error="RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", raised=_AT + 0.2
            )
        ],
        "loader_killed",
    ),
}


def _record(folder: Path, faults: list[dict[str, Any]], facts: list[Event]) -> Record:
    (folder / LOGS).mkdir(parents=True)
    workers = [{"rank": rank, "node": f"node{rank}", "local_rank": 0} for rank in range(3)]
    plan = {"run": "run", "engine": "docker", "workers": workers, "faults": faults, "timeout_s": 5.0}
    (folder / PLAN).write_text(json.dumps(plan))
    (folder / EVENTS).write_bytes(b"".join(map(event_line, facts)))
    return Record(path=folder)


@pytest.mark.parametrize("what", _BROKEN)
def test_a_verdict_is_the_same_where_nothing_on_record_tells_what_was_broken(tmp_path: Path, what: str) -> None:
    facts, cause = _BROKEN[what]
    facts = [*(Started(rank, _AT - 1, f"node{rank}") for rank in range(3)), *facts]
    planned = {"kill": "node2", "when": {"at": "1s"}}
    record = _record(tmp_path / "told", [planned], [Fault(_AT, "kill node2", number=0), *facts])
    told = judge_evidence(read_evidence(record))
    assert told == judge_evidence(read_evidence(_record(tmp_path / "untold", [], facts)))
    assert told.culprit is not None
    assert (told.culprit.node, told.culprit.cause) == ("node2", cause)
