"""`lab import records` joins what `lab record` left on several machines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.errors import RecordError
from lab.features.recording.world import World, import_worlds
from lab.node.messages.agent import Exited, Joined, Note, Stack
from lab.record.events import TimedOut
from lab.record.read import Record
from lab.record.result import Result
from tests.golden import golden

pytestmark = pytest.mark.unit
LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:40344"


class Machine:
    """The record of one machine with two of four ranks; times are seconds of the job."""

    def __init__(self, folder: Path, node: int, began: float = 0.0) -> None:
        self.ranks, self.zero = (2 * node, 2 * node + 1), time.time() - 1000 + began
        self.world = World(folder / f"node{node}", "torchrun", folder, self.joined(self.ranks[0]))
        for rank in self.ranks:
            self.world.add(self.joined(rank))
            wall, everybody = int(self.zero * 1e9), [0, 1, 2, 3]
            self.line(rank, "start", 0, format=1, rank=rank, wall=wall, boot=f"b{node}", recorder="python", values=0)
            self.line(rank, "group", 0, g="0", ranks=everybody, desc="default_pg", backend="gloo")

    def joined(self, rank: int) -> Joined:
        return Joined(rank, self.zero, claimed_rank=rank, world_size=4, meeting="29500")

    def line(self, rank: int, kind: str, at_s: float, /, **fields: Any) -> None:
        """Add a line of a trace."""
        line = {"k": kind, "t": int(at_s * 1e9), **fields}
        self.world.add_trace(rank, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def call(self, rank: int, number: int, end_s: float | None = None, error: str = "") -> None:
        """Add an all_reduce."""
        tensors = {"in": [["float32", [4]]], "ib": 16}
        own = {"seq": number, "async": False, "at": f"train.py:{number}", "red": "SUM"}
        self.line(rank, "begin", number, i=number, op="all_reduce", g="0", **own, **tensors)
        if end_s is not None:
            self.line(rank, "end", end_s, i=number, **({"err": error} if error else {}))

    def end(self, rank: int, at_s: float, **how: Any) -> None:
        """End a rank."""
        self.world.add_exit(Exited(rank, self.zero + at_s, **how))


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    """Two machines, whose ranks have made one call."""
    both = Machine(tmp_path / "kept", 0), Machine(tmp_path / "kept", 1)
    for machine in both:
        for rank in machine.ranks:
            machine.call(rank, 1, 1.5)
    return both


def imported(folder: Path) -> list[Result]:
    return import_worlds(folder / "kept", folder / "runs", "job")


def test_ranks_of_all_machines_form_one_record(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    for machine in machines:
        for rank in machine.ranks:
            machine.world.add_fact(Note(rank, machine.zero + 1, name="loss", value=rank))
            machine.end(rank, 2, code=0)
        machine.world.conclude()

    (result,) = imported(tmp_path)
    assert (result.verdict, result.scenario) == ("passed", "job")
    assert [(one.rank, one.node, one.notes) for one in result.ranks] == [
        *((rank, f"node{rank // 2}", {"loss": rank}) for rank in range(4))
    ]
    workers = Record(path=result.path or tmp_path).plan().workers
    assert [(one.rank, one.node, one.local_rank) for one in workers] == [
        *((rank, f"node{rank // 2}", rank % 2) for rank in range(4))
    ]


def test_the_machine_of_a_rank_that_raised_is_named(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = machines
    error = {"code": 1, "error": "ValueError: bad batch", "raised": second.zero + 2.0}
    second.end(2, 2.1, **error)
    for rank in (0, 1, 3):
        machine = machines[rank // 2]
        machine.call(rank, 2, 2.2, LOST)
        machine.end(rank, 2.3, code=1, error=LOST, raised=machine.zero + 2.2)
    first.world.conclude()
    second.world.conclude()

    (result,) = imported(tmp_path)
    assert result.verdict == "failed"
    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (2, "node1")


def test_a_machine_that_left_no_end_was_lost(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = machines
    for rank in first.ranks:
        first.call(rank, 2, 2.2, LOST)
        first.end(rank, 2.3, code=1, error=LOST, raised=first.zero + 2.2)
    first.world.conclude()
    second.world.writer.close()

    (result,) = imported(tmp_path)
    assert result.verdict == "failed"
    assert result.culprit is not None
    assert (result.culprit.node, golden(1) in result.reason) == ("node1", True), result.reason


def test_ranks_that_a_launcher_ended_after_a_machine_was_lost_are_not_blamed(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    first, second = machines
    first.call(0, 2)
    first.call(1, 2, 2.2, LOST)
    first.end(0, 2.1, signal="SIGTERM")
    first.end(1, 2.3, signal="SIGTERM", error=LOST, raised=first.zero + 2.2)
    first.world.conclude()
    second.world.writer.close()

    (result,) = imported(tmp_path)
    assert result.culprit is not None
    assert (result.verdict, result.culprit.node) == ("failed", "node1")


def test_nobody_is_blamed_if_the_job_was_ended(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = machines
    for rank in second.ranks:
        second.call(rank, 2)
        second.end(rank, 2, signal="SIGTERM")
    first.call(0, 2, 2.2, LOST)
    first.call(1, 2)
    first.end(0, 2.3, code=1, error=LOST, raised=first.zero + 2.2)
    first.end(1, 2.4, signal="SIGTERM")
    second.world.conclude()
    first.world.conclude()

    (result,) = imported(tmp_path)
    assert (result.verdict, result.culprit) == ("error", None)
    assert golden(1) in result.reason


def test_a_standstill_of_one_machine_is_none_if_all_calls_ended(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    for machine in machines:
        for rank in machine.ranks:
            machine.end(rank, 30, code=0)
        machine.world.writer.event(TimedOut(machine.zero + 20, 15.0))
        machine.world.conclude()

    assert [one.verdict for one in imported(tmp_path)] == ["passed"]


def test_a_standstill_shows_the_stacks_of_all_machines(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    for machine in machines:
        for rank in machine.ranks:
            if rank < 3:
                machine.call(rank, 2)
            text = f'Thread 0x1 (most recent call first):\n  File "train.py", line {rank + 1} in <module>\n'
            machine.world.writer.event(Stack(rank, machine.zero + 20, text=text))
        machine.world.writer.event(TimedOut(machine.zero + 20, 15.0))
        for rank in machine.ranks:
            machine.end(rank, 30, signal="SIGTERM")
        machine.world.conclude()

    (result,) = imported(tmp_path)
    assert result.culprit is not None
    assert (result.verdict, result.culprit.rank) == ("hung", 3), result.reason
    assert [f"line {one.rank + 1} in" in one.stack for one in result.ranks] == [True] * 4


def test_a_missing_machine_is_mentioned_and_not_blamed(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = machines
    second.world.writer.discard()
    for rank in first.ranks:
        first.call(rank, 2, 2.2, LOST)
        first.end(rank, 2.3, code=1, error=LOST, raised=first.zero + 2.2)
    first.world.conclude()

    (result,) = imported(tmp_path)
    assert (result.verdict, result.culprit) == ("failed", None)
    assert golden(1) in result.reason


def test_each_attempt_of_a_job_is_a_world(tmp_path: Path) -> None:
    for began in (0.0, 10.0):
        for node in (0, 1):
            machine = Machine(tmp_path / "kept", node, began + node)
            for rank in machine.ranks:
                machine.end(rank, 5, code=int(began == 0.0))
            machine.world.conclude()

    assert [(one.verdict, len(one.ranks)) for one in imported(tmp_path)] == [("failed", 4), ("passed", 4)]


def test_a_folder_without_such_records_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("[1]")

    assert main(["import", "records", str(tmp_path)]) == 1
    assert golden(1, tmp_path) in capsys.readouterr().err


def test_a_record_that_is_refused_leaves_no_run(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    for machine in machines:
        machine.world.conclude()
    (events,) = (tmp_path / "kept" / "node1").glob("*/events.jsonl")
    events.unlink()
    events.symlink_to("/etc/passwd")
    with pytest.raises(RecordError, match="is a symbolic link"):
        imported(tmp_path)
    assert [one for one in (tmp_path / "runs").iterdir() if one.is_dir()] == []
