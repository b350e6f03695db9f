"""What a starter starts becomes a worker of the lab's own; who else asks for one is refused."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.node import joins, stub
from lab.node.joins import JoinError, Joins, understand
from lab.node.messages.agent import Claim, WorkerStart
from lab.node.users import Users
from tests.short import SHORT

DEADLINE_S = 60.0
RANK_1 = {"RANK": "1", "LOCAL_RANK": "1", "NAME": "é=\n"}


class FakeWorker:
    """A worker, or starter, that is told of signals."""

    def __init__(self, pid: int = 0, rank: int = -2, local_rank: int = -2) -> None:
        self.pid = pid
        self.rank = rank
        self.local_rank = local_rank
        self.status: int | None = None
        self.stopped = self.given_up = False
        self.signals: list[int] = []

    def signal_all(self, number: int) -> None:
        self.signals.append(number)


class Node:
    """The agent's side of the join socket, whose starter is this process."""

    def __init__(self, folder: str, planned: tuple[WorkerStart, ...] = (), starter: int | None = None) -> None:
        self.path = os.path.join(folder, "join")
        self.begun: list[tuple[WorkerStart, list[bytes]]] = []
        self.workers: list[FakeWorker] = []
        users = Users(Claim("r", "me", 60.0, os.getuid(), os.getgid()), container=False)
        self.joins = Joins(self.path, users, self._begin)
        self.joins.starters.append(FakeWorker(os.getpid() if starter is None else starter))  # type: ignore[arg-type]
        self.variables = self.joins.open(planned, 2)
        self.stubs: list[subprocess.Popen[str]] = []

    def _begin(self, start: WorkerStart, passed: Mapping[int, int]) -> Any:
        self.begun.append((start, [os.read(fd, 100) for fd in passed.values()]))
        self.workers.append(FakeWorker(0, start.rank, start.local_rank))
        return self.workers[-1]

    def start(self, env: Mapping[str, str], *argv: str, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", "-S", "-E", stub.__file__, *argv]
        env = {**self.variables, **env}
        self.stubs.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, **more))
        return self.stubs[-1]

    def work_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < end
            with selectors.PollSelector() as selector:
                self.joins.register(selector)
                ready = {key.fd for key, _ in selector.select(0.05)} if selector.get_map() else set()
            self.joins.pass_on(ready)

    def end(self, process: subprocess.Popen[str]) -> str:
        self.work_until(lambda: process.poll() is not None)
        assert process.stderr is not None
        return process.stderr.read()

    def close(self) -> None:
        self.joins.close()
        for process in self.stubs:
            process.kill()
            process.communicate()


@pytest.fixture
def make_node() -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []
    with tempfile.TemporaryDirectory(dir=SHORT) as folder:

        def make(*planned: WorkerStart, starter: int | None = None) -> Node:
            nodes.append(Node(folder, planned, starter))
            return nodes[-1]

        yield make
        for node in nodes:
            node.close()


def test_a_stub_becomes_a_worker_with_its_words_and_variables_and_ends_as_it_does(
    make_node: Callable[..., Node],
) -> None:
    node = make_node()
    process = node.start(RANK_1, "train.py", "", "x y")
    node.work_until(lambda: bool(node.workers))
    ((start, _),) = node.begun
    assert (start.rank, start.local_rank, start.argv) == (1, 1, ["train.py", "", "x y"])
    assert {name: start.env.get(name) for name in RANK_1} == RANK_1
    assert stub.SOCKET_VARIABLE not in start.env
    node.workers[0].status = 3 << 8
    node.joins.tell_end(node.workers[0])  # type: ignore[arg-type]
    node.end(process)
    assert process.returncode == 3


def test_a_stub_is_killed_by_the_signal_that_killed_its_worker(make_node: Callable[..., Node]) -> None:
    node = make_node()
    process = node.start(RANK_1, "train.py")
    node.work_until(lambda: bool(node.workers))
    node.workers[0].status = signal.SIGSEGV
    node.joins.tell_end(node.workers[0])  # type: ignore[arg-type]
    node.end(process)
    assert process.returncode == -signal.SIGSEGV


def test_signals_are_passed_on_and_those_that_end_a_worker_are_its_starters_doing(
    make_node: Callable[..., Node],
) -> None:
    node = make_node()
    process = node.start(RANK_1, "train.py")
    node.work_until(lambda: bool(node.workers))
    (worker,) = node.workers
    number = signal.SIGUSR1
    node.work_until(lambda: catches(process.pid, number))
    process.send_signal(number)
    node.work_until(lambda: number in worker.signals)
    assert not worker.stopped
    node.work_until(lambda: catches(process.pid, signal.SIGTERM))
    process.terminate()
    node.work_until(lambda: signal.SIGTERM in worker.signals)
    assert worker.stopped
    assert process.poll() is None


def catches(pid: int, number: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0]
    return int(caught, 16) >> (number - 1) & 1 == 1


def test_the_worker_of_a_stub_that_was_killed_is_killed(make_node: Callable[..., Node]) -> None:
    node = make_node()
    process = node.start(RANK_1, "train.py")
    node.work_until(lambda: bool(node.workers))
    process.kill()
    node.work_until(lambda: bool(node.workers[0].signals))
    assert node.workers[0].signals == [signal.SIGKILL]
    assert node.workers[0].given_up


def test_a_descriptor_that_a_variable_names_goes_with_it(make_node: Callable[..., Node]) -> None:
    node = make_node()
    read, write = os.pipe()
    os.write(write, b"from the starter")
    node.start({**RANK_1, "PMI_FD": str(read)}, "train.py", pass_fds=[read])
    node.work_until(lambda: bool(node.workers))
    assert node.begun[0][1] == [b"from the starter"]
    os.close(read)
    os.close(write)


def test_who_does_not_come_from_a_starter_gets_no_worker(make_node: Callable[..., Node]) -> None:
    stranger = subprocess.Popen(["/bin/sleep", "600"])
    node = make_node(starter=stranger.pid)
    process = node.start(RANK_1, "train.py")
    assert "not what a starter of this run started" in node.end(process)
    assert (process.returncode, node.workers) == (1, [])
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "does not tell its rank"),
        ({"RANK": "-1", "LOCAL_RANK": "0"}, "does not tell its rank"),
        ({"RANK": "0"}, "does not tell its local rank"),
        ({"RANK": "0", "LOCAL_RANK": "2"}, "local rank 2 is none of the 2"),
        ({"RANK": "1", "LOCAL_RANK": "0"}, "is there already"),
        ({"RANK": "0", "LOCAL_RANK": "1"}, "is there already"),
    ],
)
def test_no_more_workers_join_than_there_may_be(make_node: Callable[..., Node], env: dict[str, str], said: str) -> None:
    node = make_node()
    node.start(RANK_1, "train.py")
    node.work_until(lambda: bool(node.workers))
    assert said in node.end(node.start(env, "train.py"))
    assert len(node.workers) == 1


def test_once_the_run_is_being_ended_nobody_joins(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.joins.refuse_more()
    process = node.start(RANK_1, "train.py")
    node.end(process)
    assert (process.returncode, node.workers) == (1, [])


def told(*words: str, numbers: tuple[int, ...] = (), **env: str) -> bytes:
    parts = [str(len(words)), *words, str(len(numbers)), *map(str, numbers), *(f"{k}={v}" for k, v in env.items())]
    return "\0".join(parts).encode()


def test_a_planned_worker_has_its_own_variables_and_those_of_its_starter_besides() -> None:
    plan = WorkerStart(2, 0, {"RANK": "2", "WORLD_SIZE": "3"}, ["train.py"])
    start, _ = understand(told("train.py", PMI_RANK="2", PMI_SIZE="3"), {2: plan})
    assert start.env == {"RANK": "2", "WORLD_SIZE": "3", "PMI_RANK": "2", "PMI_SIZE": "3"}
    assert (start.rank, start.local_rank, start.attempt) == (2, 0, "")
    with pytest.raises(JoinError, match="rank 1 is none of this node's"):
        understand(told("train.py", PMI_RANK="1"), {2: plan})


def test_workers_of_torchrun_that_meet_are_of_one_attempt_however_often_each_agent_has_restarted() -> None:
    meeting = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "node0", "MASTER_PORT": "4000"}
    first, _ = understand(told("train.py", **meeting, TORCHELASTIC_RESTART_COUNT="0"), {})
    other, _ = understand(told("train.py", **meeting, TORCHELASTIC_RESTART_COUNT="1"), {})
    later, _ = understand(told("train.py", **{**meeting, "MASTER_PORT": "4001"}, TORCHELASTIC_RESTART_COUNT="1"), {})
    assert first.attempt == other.attempt != later.attempt


@pytest.mark.parametrize("said", [b"", b"\0", b"x\0y", b"3\0a", b"1\0a\09\0x", b"0\0000", b"-3\0\0\0"])
def test_what_cannot_be_read_is_refused(said: bytes) -> None:
    with pytest.raises(JoinError):
        understand(said, {})


def test_no_descriptor_takes_the_place_of_one_of_the_workers_own() -> None:
    for number in (0, 2, joins._PASSED_NUMBERS.stop):
        with pytest.raises(JoinError, match="descriptors that a worker cannot have"):
            understand(told("a.py", numbers=(number,), RANK="0", LOCAL_RANK="0"), {})
