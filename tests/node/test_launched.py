"""What a launcher starts becomes a worker on record, and ends as that does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.node import launched, processes, statement
from lab.node.launch import wrap_worker
from lab.node.messages import wire
from lab.node.messages.agent import Claim, Launch, Launched, WorkerSettings, WorkerStart
from lab.node.rank.joining import STARTUP
from lab.node.rank_process import Worker
from lab.node.statement import Datagram
from lab.node.users import Users
from tests.golden import golden
from tests.short import SHORT

DEADLINE_S = 30.0
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(STARTUP)))
USERS = Users(Claim("r", "me", 60.0), container=False)


class Node:
    """The agent's side, whose launcher is this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = statement.bind_notes(str(folder / "notes"))
        self.workers: list[Worker] = []
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, script: str, *planned: WorkerStart, parent: int | None = None, **env: str) -> subprocess.Popen[str]:
        (self.folder / "train.py").write_text(script)
        settings = WorkerSettings(str(self.folder), os.path.dirname(STARTUP))
        launch = Launch(settings, planned, (), str(self.folder / "notes"), str(self.folder), {})
        (self.folder / "launch.json").write_text(json.dumps(wire.to_plain_data(launch)))
        told = {
            launched.VARIABLE: f"{parent or os.getpid()}:{self.folder / 'launch.json'}",
            "PYTHONPATH": f"{STARTUP}{os.pathsep}{ROOT}",
        }
        command = [sys.executable, "train.py", "x y"]
        env = {**os.environ, **told, **env}
        piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.processes.append(subprocess.Popen(command, env=env, cwd=self.folder, **piped))
        return self.processes[-1]

    def receive(self) -> tuple[Launched, Datagram]:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for letter in statement.receive_statements(self.notes):
                told = letter.statement
                assert isinstance(told, Launched)
                mine = dict(zip(told.channels, letter.fds, strict=True))
                letter.fds.clear()
                notes = statement.bind_notes(str(self.folder / f"of{told.rank}"))
                os.close(mine.pop("notes"))
                start = WorkerStart(told.rank, told.local_rank, {}, [], attempt=told.attempt)
                self.workers.append(wrap_worker(start, told.pid, notes, mine, USERS))
                return told, letter
            time.sleep(0.01)
        raise AssertionError("nobody became a worker")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        for worker in self.workers:
            worker.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(dir=SHORT) as folder:
        made = Node(Path(folder))
        yield made
        made.close()


def end_of(worker: Worker) -> int:
    end = time.monotonic() + DEADLINE_S
    while worker.is_running:
        assert time.monotonic() < end
        list(worker.poll_status())
        time.sleep(0.01)
    return worker.status


def test_a_process_of_a_launcher_says_who_it_is(node: Node) -> None:
    process = node.start("", RANK="1", LOCAL_RANK="0", TORCHELASTIC_RESTART_COUNT="0", MASTER_ADDR="a", MASTER_PORT="1")
    told, letter = node.receive()
    assert (told.rank, told.local_rank, told.attempt) == (1, 0, "a:1")
    assert letter.pid == process.pid
    assert processes.parent_of(told.pid) == process.pid
    assert processes.parent_of(process.pid) == os.getpid()


def test_a_process_is_killed_with_the_signal_that_killed_its_worker(node: Node) -> None:
    process = node.start("", RANK="0", LOCAL_RANK="0")
    told, _ = node.receive()
    os.kill(told.pid, signal.SIGUSR1)
    assert end_of(node.workers[0]) == signal.SIGUSR1
    assert process.wait(DEADLINE_S) == -signal.SIGUSR1


def test_a_signal_that_ends_is_passed_on_and_known_to_be_of_the_launcher(node: Node) -> None:
    process = node.start("", RANK="0", LOCAL_RANK="0")
    node.receive()
    process.terminate()
    assert end_of(node.workers[0]) == signal.SIGTERM
    assert node.workers[0].stopped
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


def test_a_worker_dies_with_the_process_that_its_launcher_kills(node: Node) -> None:
    process = node.start("", RANK="0", LOCAL_RANK="0")
    told, _ = node.receive()
    process.kill()
    assert end_of(node.workers[0]) == signal.SIGKILL
    assert node.workers[0].killed_by_starter
    process.wait(DEADLINE_S)
    end = time.monotonic() + DEADLINE_S
    while not processes.is_zombie(told.pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_that_no_agent_wants_ends_with_a_sentence(node: Node) -> None:
    process = node.start("", RANK="0", LOCAL_RANK="0")
    node.receive()
    os.close(node.workers[0].ends.pop("gate"))
    assert process.wait(DEADLINE_S) == 1


def test_a_rank_that_is_not_planned_does_not_start(node: Node) -> None:
    process = node.start("", WorkerStart(3, 1, {}, ["train.py"]), RANK="1", LOCAL_RANK="0")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert golden(1) in errors


@pytest.mark.parametrize(("parent", "env"), [(1, {"RANK": "0"}), (None, {"RANK": ""}), (None, {"RANK": "x"})])
def test_any_other_process_runs_as_it_is(node: Node, parent: int | None, env: dict[str, str]) -> None:
    process = node.start("import sys; print(sys.argv)", parent=parent, **env)
    printed, _ = process.communicate(timeout=DEADLINE_S)
    assert printed == "['train.py', 'x y']\n"
