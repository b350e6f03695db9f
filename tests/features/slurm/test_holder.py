"""The process that holds the agents passes on what is said, whole lines of it, whatever its clients do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.node.messages.agent import ended_file
from tests.crash.conftest import wait_until
from tests.golden import golden
from tests.short import SHORT

ECHO = [sys.executable, "-uc", "import sys; [sys.stdout.write(line) for line in sys.stdin]; sys.exit(3)"]
"""In the place of a step: says what it hears, and ends with it."""
START = "import sys; sys.path.insert(0, {above!r}); from lab.features.slurm.holder import main; main()"
ABOVE = str(Path(__file__).parents[4])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short path, and a `scancel` that only says that it was called."""
    folder = Path(tempfile.mkdtemp(prefix="lab-", dir=SHORT))
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >{folder}/given; mv {folder}/given {folder}/given-back\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def held(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, with one node."""
    (home / "agent.bin").write_bytes(b"first\n")
    said = json.dumps({"folder": str(home), "job": "7", "argvs": {"node0": ECHO}})
    process = subprocess.Popen([sys.executable, "-c", START.format(above=ABOVE), said])
    until((home / "node0.sock").exists)
    yield process
    process.kill()
    process.wait(20)
    until((home / "given-back").exists)


def until(done: Callable[[], bool]) -> None:
    wait_until(done, "what was asked for", 20.0)


class Client:
    """One who is connected to the node."""

    def __init__(self, home: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(20)
        self.connection.connect(str(home / "node0.sock"))
        self._rest = b""

    def hear(self, count: int) -> list[bytes]:
        """So many lines, without that which the agent was sent first."""
        heard: list[bytes] = []
        while len(heard) < count:
            data = self.connection.recv(1 << 20)
            assert data
            *lines, self._rest = (self._rest + data).split(b"\n")
            heard += [line for line in lines if line != b"first"]
        return heard


def test_whole_lines_are_passed_on_and_every_client_hears_the_agent(held, home: Path):
    one, two = Client(home), Client(home)
    one.connection.sendall(b"begun, ")
    two.connection.sendall(b"two\n")
    assert two.hear(1) == [b"two"]
    long = b"x" * 3_000_000
    one.connection.sendall(b"and ended\n" + long + b"\n")
    assert two.hear(2) == [b"begun, and ended", long]
    assert one.hear(3) == [b"two", b"begun, and ended", long]
    one.connection.close()
    two.connection.sendall(b"still\n")
    assert two.hear(1) == [b"still"]


def test_who_leaves_in_the_middle_of_a_line_leaves_none_of_it(held, home: Path):
    one = Client(home)
    one.connection.sendall(b"half a li")
    one.connection.close()
    two = Client(home)
    two.connection.sendall(b"whole\n")
    assert two.hear(1) == [b"whole"]


def test_killed_it_has_given_the_allocation_back(held, home: Path):
    held.send_signal(signal.SIGKILL)
    until((home / "given-back").exists)
    assert (home / "given-back").read_text() == "--quiet 7\n"


def test_how_a_step_ended_is_said_and_it_can_be_started_again(held, home: Path):
    one = Client(home)
    one.connection.sendall(b"a\n")
    assert one.hear(1) == [b"a"]
    assert ask(home, "node0") == "it runs already"
    (step,) = (pid for pid in children(held.pid) if b"sys.stdin" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(step, signal.SIGKILL)
    while one.connection.recv(1 << 16):
        pass
    assert Path(ended_file(str(home / "node0.sock"))).read_text() == "137"
    assert ask(home, "node1") == golden(1)
    assert ask(home, "node0") == ""
    again = Client(home)
    again.connection.sendall(b"b\n")
    assert again.hear(1) == [b"b"]


def ask(home: Path, node: str) -> str:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(20)
        asking.connect(str(home / "holder.sock"))
        asking.sendall(f"{node}\n".encode())
        return asking.recv(1024).decode().strip()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
