"""`lab attach` reads real jobs on this machine, which go on as if nothing had been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lab.features.attach.job import Unable, _read_dumps, find_program, find_worlds, inspect_world, read_samples
from lab.polling import poll_until
from tests.golden import golden
from tests.short import SHORT

pytestmark = pytest.mark.half

WORK = """
import os, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def load(how):
    open("in", "w").close()
    if how == "sleeps":
        os.open("go", os.O_RDONLY)
    turns = 0
    while how == "loops" and not os.path.exists("go"):
        turns += 1


def step_until_released():
    released = torch.zeros(1)
    while not released:
        time.sleep(0.002)
        released += os.path.exists("steps")
        dist.all_reduce(released)


def work(rank, how, world_size, port):
    if port:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(world_size))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    if len(sys.argv) > 3:
        import torch.distributed.debug as debug

        debug.start_debug_server(port=int(sys.argv[3]))
    if how == "loops":
        step_until_released()
    tensor = torch.ones(2)
    for step in range(3):
        if rank == 1 and step == 1:
            load(how)
        dist.all_reduce(tensor)
    open(f"result{rank}", "w").write(f"{tensor.tolist()}")
    if len(sys.argv) > 3:
        dist.barrier()
        debug.stop_debug_server() if rank == 0 else os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), sys.argv[1], int(os.environ["WORLD_SIZE"]), "")
    else:
        mp.start_processes(work, (sys.argv[1], 3, sys.argv[2]), 3, start_method="fork")
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
LINES = [n for n, line in enumerate(WORK.splitlines(), 1) if "dist.all_reduce" in line]


def lab(*words: str) -> list[str]:
    return [sys.executable, "-m", "lab.cli.main", *words]


class Job:
    """A job in a folder of its own, whose rank 1 does not come to the second all_reduce before it is released."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder = folder
        self.folder.mkdir()
        (folder / "train.py").write_text(WORK)
        if "sleeps" in command:
            os.mkfifo(folder / "go")
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        JOBS.append(self)

    @property
    def pid(self) -> int:
        return self.process.pid

    def rank_pids(self, *, steps: bool = False) -> list[int]:
        """Return the processes of the ranks once two of them wait for rank 1, or once they all step."""
        pids: list[int] = []

        def waits() -> bool:
            if not (steps or (self.folder / "in").exists()):  # to read stacks costs as much as to compute
                return False
            pids[:] = [rank.pid for world in find_worlds(self.pid) for rank in world]
            samples = read_samples(find_program(), pids, 10)
            calls = [any(f"line {line} in" in one.stack for line in LINES) for one in samples.values()]
            return calls.count(True) >= 2

        poll_until(waits, 90, 0.1)
        return pids

    def end(self) -> tuple[int, list[str]]:
        """Release rank 1; return the exit code and what the ranks computed."""
        with open(self.folder / "go", "w"):
            code = self.process.wait(timeout=60)
        return code, [(self.folder / f"result{rank}").read_text() for rank in range(3)]


JOBS: list[Job] = []
ENDED_WELL = 0, ["[27.0, 27.0]"] * 3


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(SHORT, f"lab-attach-{os.getpid()}")
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[3]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def end_jobs() -> Iterator[None]:
    """End the jobs that a failed test has left."""
    yield
    for job in [one for one in JOBS if one.process.poll() is None]:
        pids = [rank.pid for world in find_worlds(job.pid) for rank in world]
        job.process.terminate()
        job.process.wait(30)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def py_spy() -> str:
    if find_spec("torch") is None:
        pytest.skip("there is no torch")
    try:
        return find_program()
    except Unable:
        pytest.skip("py-spy is not installed")


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("", 0))
        return str(one.getsockname()[1])


def attach(pid: int, *options: str) -> Any:
    ended = subprocess.run(lab("attach", str(pid), "--json", *options), capture_output=True, text=True, check=True)
    (world,) = json.loads(ended.stdout)["worlds"]
    return world


def test_ranks_of_torchrun_wait_for_one_that_is_elsewhere_and_the_job_goes_on(folder: Path, py_spy: str) -> None:
    job = Job(folder / "torchrun", [*TORCHRUN, "train.py", "sleeps"])
    pids = job.rank_pids()

    by_launcher = attach(job.pid)

    assert by_launcher == attach(pids[1])
    assert (by_launcher["launcher"], by_launcher["world_size"]) == (job.pid, 3)
    assert [rank["rank"] for rank in by_launcher["ranks"]] == [0, 1, 2]
    assert [rank["call"] for rank in by_launcher["ranks"]] == ["all_reduce", "", "all_reduce"]
    assert [rank["at"].partition(":")[0] for rank in by_launcher["ranks"]] == ["train.py"] * 3
    assert [rank["moved"] for rank in by_launcher["ranks"]] == [False] * 3
    assert by_launcher["finding"] is None  # stacks alone do not show calls
    once = attach(job.pid, "--interval", "0")
    assert [rank["moved"] for rank in once["ranks"]] == [None] * 3
    assert job.end() == ENDED_WELL


def test_with_a_record_only_a_call_that_a_rank_does_not_enter_is_reported(folder: Path, py_spy: str) -> None:
    job = Job(folder / "recorded", lab("record", "--", sys.executable, "train.py", "loops", free_port()))

    pids = job.rank_pids(steps=True)
    (ranks,) = find_worlds(job.pid)
    healthy = [inspect_world(ranks, py_spy, 0.2, 10) for _ in range(3)]
    (job.folder / "steps").touch()
    job.rank_pids()
    poll_until(lambda: attach(pids[1])["finding"] is not None, 20)  # the record may be behind
    world = attach(pids[0])

    assert all(one is not None and one.data["finding"] is None for one in healthy)
    assert not any(rank.waits for one in healthy if one is not None for rank in one.ranks)
    assert (world["finding"]["kind"], world["finding"]["ranks"]) == ("never_entered", [1])
    assert [(rank["rank"], rank["moved"]) for rank in world["ranks"]] == [(0, False), (1, True), (2, False)]
    (run,) = (job.folder / ".lab" / "runs").iterdir()
    assert str(run) in world["calls"]
    assert job.end() == ENDED_WELL


def test_the_debug_server_of_pytorch_shows_calls_and_variables_show_ranks(folder: Path, py_spy: str) -> None:
    pytest.importorskip("tabulate")
    if find_spec("torch.distributed.debug") is None:
        pytest.skip("this torch has no debug server")
    job = Job(folder / "server", [sys.executable, "train.py", "sleeps", free_port(), free_port()])
    pids = job.rank_pids()
    poll_until(lambda: attach(pids[1])["finding"] is not None, 20)

    world = attach(pids[1])

    assert (world["launcher"], world["world_size"]) == (job.pid, 3)
    assert sorted(rank["rank"] for rank in world["ranks"]) == [0, 1, 2]
    finding = world["finding"]
    assert (finding["kind"], finding["ranks"], finding["step"]) == ("never_entered", [1], "all_reduce #2")
    assert job.end() == ENDED_WELL


def test_a_process_that_belongs_to_no_job_is_refused() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        refused = subprocess.run(lab("attach", str(other.pid)), capture_output=True)
        other.kill()
    gone = subprocess.run(lab("attach", str(other.pid)), capture_output=True)

    assert (refused.returncode, gone.returncode) == (2, 2)
    assert b"sleep" in refused.stderr
    assert str(other.pid).encode() in gone.stderr


def test_a_python_that_loads_torch_is_no_job(folder: Path, py_spy: str) -> None:
    script = "import torch, os; os.fork() or os.close(1); print('up', flush=True); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        time.sleep(0.1)
        refused = subprocess.run(lab("attach", str(other.pid)), capture_output=True)
        assert other.stdin is not None
        other.stdin.close()

    assert refused.returncode == 2


def test_without_py_spy_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unable) as caught:
        find_program()

    assert caught.value.exit_code == 3
    assert caught.value.message == golden(1)


def test_a_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(Unable) as caught:
        find_worlds(os.getpid())

    assert caught.value.exit_code == 3


def test_no_process_keeps_others_from_being_read_by_what_it_claims() -> None:
    rename = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xd0\\xbe\\xd0'); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    claims = [("0", "2"), ("9" * 5000, "2"), ("0", "1" + 12 * "0")]
    others = []
    for rank, size in claims:
        claimed = {**os.environ, "RANK": rank, "WORLD_SIZE": size}
        others.append(subprocess.Popen([sys.executable, "-c", rename], env=claimed, **pipes))  # type: ignore[call-overload]
    try:
        for one in others:
            one.stdout.readline()
        sizes = [
            [rank.size for world in find_worlds(one.pid) for rank in world if rank.pid == one.pid] for one in others
        ]
    finally:
        for one in others:
            one.communicate()

    assert sizes == [[2], [], []]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", [b"HTTP/1.0 100 Continue\r\n\r\n", b"["])
def test_a_debug_server_that_never_ends_its_answer_is_left_at_the_limit(piece: bytes, tmp_path: Path) -> None:
    def answer() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            while True:
                connection.sendall(piece)
                time.sleep(0.02)

    with socket.create_server(("localhost", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        assert _read_dumps(server.getsockname()[1], 0.5, tmp_path) is None
