"""What ranks read: the terminal of whoever runs them, one rank after another; what is piped in; else nothing."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result
from lab.record.read import Record
from tests.golden import golden

pytestmark = pytest.mark.half

SCRIPT = Path(__file__).parent / "scripts" / "terminal.py"
DEADLINE_S = 90.0
CTRL_C, CTRL_CLOSE = "\x03", "\x1d"
Run = Callable[..., Result]


COLD_TOO = pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])


class Person:
    """Somebody at a terminal who has given a command."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="xterm", NO_COLOR="1")
            os.execv(command[0], command)
        self.resize(30, 100)
        self.settings = termios.tcgetattr(self.fd)
        self.seen = self.all = ""

    def sees(self, text: str) -> str:
        """Wait until a text has come; what came until then is not looked at again."""
        return self._read(lambda: text in self.seen, lambda: self.seen.index(text) + len(text), text)

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def interrupts(self, text: str) -> None:
        """Press Ctrl-C until a text has come: Python loses one that comes between its prompt and its wait for keys."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.seen and time.monotonic() < end:
            self.types(CTRL_C)
            if select.select([self.fd], [], [], 1.0)[0]:
                self.sees(text)
                return
        self.sees(text)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def ends(self) -> tuple[int, str]:
        """The exit code of the command, and what came last."""
        rest = self._read(lambda: self._over, lambda: len(self.seen), "its end")
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), rest

    @property
    def terminal_is_as_before(self) -> bool:
        return termios.tcgetattr(self.fd) == self.settings

    _over = False

    def _read(self, done: Callable[[], bool], until: Callable[[], int], awaited: str) -> str:
        end = time.monotonic() + DEADLINE_S
        while not done():
            if not select.select([self.fd], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"{awaited!r} did not come; this did: {self.seen}")
            try:
                chunk = os.read(self.fd, 65536)
            except OSError:
                chunk = b""
            self.all += chunk.decode("utf-8", "replace")
            self.seen += chunk.decode("utf-8", "replace")
            if not chunk:
                self._over = True
                assert done(), f"{awaited!r} did not come; this did: {self.seen}"
        at = until()
        found, self.seen = self.seen[:at], self.seen[at:]
        return found

    def close(self) -> None:
        """Make an end of it, however the test went."""
        try:
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        os.close(self.fd)


@pytest.fixture
def command(cluster: Cluster, engine: str, tmp_path: Path) -> Callable[..., list[str]]:
    """A command that runs the script on the shared cluster."""

    def command(*words: str, nodes: int, options: list[str]) -> list[str]:
        where = ["--engine", engine, "--name", cluster.name, "--nodes", str(nodes), "--runs", str(tmp_path / "runs")]
        return [sys.executable, "-m", "lab.cli.main", "run", str(SCRIPT), *where, *options, "--", *words]

    return command


@pytest.fixture
def at_terminal(command: Callable[..., list[str]], tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """Starts a run at a terminal."""
    started: list[Person] = []

    def start(*words: str, nodes: int = 2, options: list[str] | None = None) -> Person:
        started.append(Person(command(*words, nodes=nodes, options=options or []), tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.local_first
@COLD_TOO
def test_a_rank_at_a_breakpoint_has_the_terminal_until_it_goes_on(
    at_terminal: Callable[..., Person], tmp_path: Path, cold: bool
) -> None:
    debugging = at_terminal("stops", "1", options=["--cold"] if cold else None)
    debugging.sees("rank 1 (node1) is at a breakpoint, terminal.py:")
    debugging.sees("(Pdb) ")
    debugging.types("p rank, x.tolist()\r")
    debugging.sees("(1, [1.0])")
    debugging.sees("(Pdb) ")
    debugging.interrupts("--KeyboardInterrupt--")
    debugging.sees("(Pdb) ")
    debugging.types("n\r")
    debugging.sees("print(")
    debugging.sees("(Pdb) ")
    debugging.types("c\r")
    code, rest = debugging.ends()
    assert (code, "✔ passed" in rest) == (0, True), rest
    assert {"node0/rank0 | sum 2.0", "node1/rank1 | sum 2.0"} <= {*debugging.all.splitlines()}
    assert debugging.terminal_is_as_before
    [record] = (tmp_path / "runs").iterdir()
    pieces = [piece for piece in Record(path=record).output() if piece.stream == 3]
    assert {piece.rank for piece in pieces} == {1}
    assert b"(1, [1.0])" in b"".join(piece.data for piece in pieces)


@pytest.mark.local_first
def test_ranks_at_breakpoints_have_the_terminal_one_after_another(at_terminal: Callable[..., Person]) -> None:
    debugging = at_terminal("stops", "0", "1")
    ranks = []
    for _ in range(2):
        shown = debugging.sees("has the terminal")
        ranks += re.findall(r"rank (\d) \(node\d\) is at a breakpoint", shown)
        debugging.sees("(Pdb) ")
        debugging.types("c\r")
    code, rest = debugging.ends()
    assert (code, sorted(ranks)) == (0, ["0", "1"]), rest


def test_a_rank_that_is_given_the_terminal_has_it_to_its_end(at_terminal: Callable[..., Person]) -> None:
    asked = at_terminal("asks", options=["--interactive", "1"])
    asked.sees("rank 1 (node1) has the terminal")
    asked.sees("size 100 30 True True")
    asked.sees("word? ")
    asked.types("wrod" + "\x7f" * 3 + "ord\r")
    asked.sees("got 'word'")
    asked.resize(33, 77)
    asked.sees("now 77 33")
    asked.types("end\r")
    code, rest = asked.ends()
    assert code == 0, rest
    assert asked.terminal_is_as_before


@pytest.mark.local_first
def test_the_others_pass_over_breakpoints_and_read_nothing_then(at_terminal: Callable[..., Person]) -> None:
    asked = at_terminal("asks", options=["--interactive", "1"])
    asked.sees("word? ")
    asked.types("x\rend\r")
    code, rest = asked.ends()
    assert code == 0, rest
    assert golden(1) in asked.all
    assert "node0/rank0 | rank 0 reads ''" in asked.all


@pytest.mark.local_first
@pytest.mark.parametrize(
    "how", ["Ctrl-]", "SIGHUP", "its cluster is lost", pytest.param("SIGTERM", marks=pytest.mark.long)]
)
def test_the_terminal_is_as_before_however_the_run_ends(
    at_terminal: Callable[..., Person], make_cluster: Callable[..., Cluster], how: str
) -> None:
    debugging = at_terminal("stops", "0")
    debugging.sees("(Pdb) ")
    assert not debugging.terminal_is_as_before
    if how == "Ctrl-]":
        debugging.types(CTRL_CLOSE)
    elif how == "its cluster is lost":
        debugging.types("import os; os.kill(os.getppid(), 9)\r")
    else:
        os.kill(debugging.pid, signal.Signals[how])
    code, rest = debugging.ends()
    assert code == (1 if "lost" in how else 130), rest
    assert debugging.terminal_is_as_before


@pytest.mark.local_first
def test_what_an_unasked_debugger_shows_does_not_act(at_terminal: Callable[..., Person]) -> None:
    debugging = at_terminal("writes_what_acts", nodes=1)
    debugging.sees("(Pdb) ")
    debugging.types("!print(title)\r")
    shown = debugging.sees("3J")
    assert not re.search(r"\x1b\]|\x1b\[2J|\x9b", shown)
    assert "\\x1b]0;mine" in shown
    debugging.types("c\r")
    assert debugging.ends()[0] == 0


@pytest.mark.local_first
def test_a_rank_that_asks_for_the_terminal_over_and_over_holds_nobody_up(at_terminal: Callable[..., Person]) -> None:
    asked = at_terminal("asks_without_taking", nodes=1)
    asked.sees("is at a breakpoint, \\x1b[2Jx.py:1, and has the terminal")
    code, rest = asked.ends()
    assert code == 0, rest
    assert asked.terminal_is_as_before


@pytest.mark.local_first
@pytest.mark.parametrize(("way", "what"), [("stops", "breakpoint()"), ("sets_trace", "pdb.set_trace()")])
@COLD_TOO
def test_without_a_terminal_a_breakpoint_says_so(run: Run, way: str, what: str, cold: bool) -> None:
    result = run("terminal.py", way, "1", nodes=2, cold=cold) if way == "stops" else run("terminal.py", way, nodes=1)
    text = SCRIPT.read_text().splitlines()
    rank, line = (
        (1, text.index("        breakpoint()") + 1) if way == "stops" else (0, text.index("    pdb.set_trace()") + 1)
    )

    assert result.verdict == "failed"
    assert result.culprit is not None
    assert result.culprit.rank == rank
    assert golden(1, rank, what, line) in result.ranks[rank].error
    assert "labnode" not in result.ranks[rank].traceback


@pytest.mark.local_first
def test_a_script_may_choose_what_a_breakpoint_does(run: Run) -> None:
    assert run("terminal.py", "stops", "0", nodes=1, env={"PYTHONBREAKPOINT": "0"}).passed


def piped(command: list[str], data: bytes | Any, folder: Path) -> dict[str, Any]:
    """The result of a run that something is piped into."""
    given: dict[str, Any] = {"input": data} if isinstance(data, bytes) else {"stdin": data}
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=DEADLINE_S, **given)
    result: dict[str, Any] = json.loads(done.stdout)
    return {**result, "code": done.returncode}


def log_of(result: dict[str, Any], rank: int) -> str:
    return Record(path=Path(result["path"])).log(rank).decode()


@pytest.mark.local_first
@COLD_TOO
def test_what_is_piped_in_is_for_rank_0_to_its_last_byte(
    command: Callable[..., list[str]], tmp_path: Path, cold: bool
) -> None:
    data = os.urandom(3_000_000)
    options = ["--stdin", "--json", *(["--cold"] if cold else [])]
    result = piped(command("reads", nodes=2, options=options), data, tmp_path)
    assert result["code"] == 0, result["reason"]
    assert log_of(result, 0) == f"{len(data)} {hashlib.sha256(data).hexdigest()}\n"
    assert log_of(result, 1) == f"0 {hashlib.sha256(b'').hexdigest()}\n"


@pytest.mark.local_first
@pytest.mark.parametrize("way", ["reads", "reads_nothing"])
def test_a_file_is_piped_in_whether_or_not_it_is_read(
    command: Callable[..., list[str]], tmp_path: Path, way: str
) -> None:
    (tmp_path / "data").write_bytes(b"x" * 1_500_000)
    with (tmp_path / "data").open("rb") as file:
        result = piped(command(way, nodes=1, options=["--stdin", "--json"]), file, tmp_path)
    assert result["code"] == 0, result["reason"]
    assert log_of(result, 0).startswith("1500000 " if way == "reads" else "ready")


@pytest.mark.local_first
def test_without_being_asked_for_what_is_piped_in_is_left_alone(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    result = piped(command("reads", nodes=1, options=["--json"]), b"data", tmp_path)
    assert log_of(result, 0).startswith("0 ")


@pytest.mark.local_first
def test_what_is_typed_is_for_rank_0_line_by_line_until_its_end(at_terminal: Callable[..., Person]) -> None:
    typed = at_terminal("reads_lines", nodes=1, options=["--stdin"])
    for word in ("one", "two"):
        typed.types(f"{word}\n")
        typed.sees(f"node0/rank0 | line {word}")
    typed.types("\x04")
    assert typed.ends()[0] == 0
