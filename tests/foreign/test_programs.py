"""Programs in the shapes of well-known ones, written for other launchers, do under the lab what they do there.

Each prints the same lines on the same ranks and ends with the same code: recorded, and not. Where several processes
write to one pipe, they write whole lines. Those that start their processes themselves are compared with plain Python,
because under torchrun they wait for ever.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab import Cluster
from lab.node import processes
from lab.run.collect import Observer
from lab.spec.load import scenario_from_script

PROGRAMS = Path(__file__).parent / "programs"
NODES = 3
Lines = dict[int, list[str]]
"""What each rank printed, sorted: processes of one rank may take turns in any way."""


@dataclass(frozen=True)
class Program:
    """A program, its arguments, and how many ranks its launcher is to start; 0: it starts its processes itself."""

    name: str
    words: str = ""
    """`PORT` stands for a free port, `FOLDER` for one that all ranks share."""
    ranks: int = NODES

    @property
    def path(self) -> Path:
        return PROGRAMS / self.name

    def __str__(self) -> str:
        words = f" {self.words}" if self.words else ""
        return f"{self.name}{words}{' by itself' if self.ranks == 0 else ''}"


QUICK = (Program("handlers.py", ranks=2),)
LONG = (
    Program("multinode.py", "2 1", ranks=2),
    Program("small_gpt.py"),
    Program("spawn_ddp.py", "PORT", ranks=0),
    Program("rpc_parameter_server.py", "PORT", ranks=0),
    Program("zero_optimizer.py", "PORT", ranks=0),
    Program("checkpoint.py", "FOLDER"),
    Program("fsdp.py"),
    Program("tensor_parallel.py", ranks=2),
    Program("pipeline.py"),
    Program("loader_workers.py"),
    Program("imagenet.py", "--epochs 2 -b 8"),
    Program(
        "imagenet.py",
        "--multiprocessing-distributed --world-size 1 --rank 0 --dist-url tcp://127.0.0.1:PORT",
        ranks=0,
    ),
    Program("queues.py", ranks=0),
    Program("hogwild.py", ranks=0),
    Program("batching_rpc.py", "PORT", ranks=0),
    Program("launches_itself.py"),
    Program("launches_itself.py", "PORT", ranks=0),
    Program("starts_torchrun.py", ranks=0),
    Program("local_rank_argument.py", "--steps 3"),
    Program("local_rank_argument.py", ranks=1),
    Program("recorded_error.py"),
    Program("train_package.py", "--name=value plain"),
    Program("run_module.py", "--epochs 2"),
    Program("exits.py"),
    *(Program("exits.py", how, ranks=1) for how in ("usage", "text", "hard", "signal", "hook", "assert", "interrupt")),
    Program("handlers.py"),
    Program("spawned_loader.py", ranks=1),
    Program("progress.py"),
    Program("locked_prints.py"),
    Program("uneven_join.py"),
    Program("main_process_first.py"),
    Program("file_store.py", "FOLDER"),
    Program("device_mesh.py"),
)


class Listener(Observer):
    """Keeps what ranks print to standard output."""

    def __init__(self) -> None:
        self.said: dict[int, bytes] = defaultdict(bytes)

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        if stream == 1:
            self.said[rank] += data


def sorted_lines(said: dict[int, bytes]) -> Lines:
    return {rank: sorted(text.decode().splitlines()) for rank, text in said.items()}


def arguments(program: Program, folder: Path | str) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return program.words.replace("PORT", str(port)).replace("FOLDER", str(folder)).split()


def elsewhere(program: Program, folder: Path) -> tuple[int, Lines]:
    """Exit code and output of a program under torchrun on one host, or under plain Python."""
    work, logs = folder / "work", folder / "logs"
    shutil.copytree(PROGRAMS, work)
    words = [program.name, *arguments(program, folder / "theirs")]
    if program.ranks:
        options = ["--standalone", f"--nproc-per-node={program.ranks}", f"--log-dir={logs}", "--redirects=3"]
        words = ["-m", "torch.distributed.run", *options, *words]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            said, _ = process.communicate(timeout=300)
        except BaseException:  # its workers are in sessions of their own
            processes.kill_processes([*processes.list_descendants(process.pid), process.pid])
            raise
    files = {int(path.parent.name): path for path in logs.rglob("stdout.log")}
    return process.returncode, sorted_lines({rank: path.read_bytes() for rank, path in files.items()} or {0: said})


@pytest.mark.timeout(600)
@pytest.mark.local_first
@pytest.mark.parametrize(
    "program",
    [*QUICK, *(pytest.param(program, marks=pytest.mark.long) for program in LONG)],
    ids=str,
)
def test_a_program_from_elsewhere_prints_and_ends_as_it_does_there(
    program: Program, engine: str, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    code, expected = elsewhere(program, tmp_path)
    assert expected
    scenario = scenario_from_script(program.path)
    for trace in (True, False):
        folder = f"/shared/{trace}" if engine == "docker" else tmp_path / f"ours-{trace}"
        listener = Listener()
        result = make_cluster(nodes=NODES).run(
            replace(scenario, args=tuple(arguments(program, folder)), timeout_s=200.0),
            nodes=program.ranks or 1,
            trace=trace,
            observer=listener,
            runs=tmp_path / "runs",
        )
        assert (result.exit_code, sorted_lines(listener.said)) == (code, expected), result.reason
