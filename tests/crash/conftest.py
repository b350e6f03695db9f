"""The command line as a person has it, but with a state, an owner, a folder and clusters that are the test's alone.

Everything that a command starts inherits a token in its environment, so that a process that outlives its test is
found whatever it is called, and every label names an owner whom nobody else is.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lab import polling
from tests.short import SHORT

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "tests" / "stub"
TOKEN = "LAB_TEST_TOKEN"
HOLD = """
import os, time
print("holding", os.environ["RANK"], flush=True)
time.sleep(600)
"""
DEADLINE_S = 150.0


_OF_A_CLUSTER = ("up", "run", "test", "status", "exec", "shell", "stop", "start", "fault", "down")
"""Verbs that take the name of one."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything that it wrote."""
        return self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)


class Command:
    """A command that runs; what it writes goes into files, so that it never waits for us."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str], notes: Path) -> None:
        self._out, self._err = notes / f"{uuid.uuid4().hex}.out", notes / f"{uuid.uuid4().hex}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._out.read_text(errors="replace") + self._err.read_text(errors="replace")

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until it has written a text so often."""
        wait_until(lambda: self.said.count(text) >= count or self.process.poll() is not None, f"{text!r} in its output")
        assert self.said.count(text) >= count, self.said

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def lives_on_for(self, seconds: float) -> bool:
        """Give it so much of its life; says whether there is more."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def end(self, timeout_s: float = DEADLINE_S) -> Ended:
        """Wait for its end."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"no end within {timeout_s} s: {self.process.args}\n{self.said}")
        return Ended(code, self._out.read_text(errors="replace"), self._err.read_text(errors="replace"))


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition; fail when it takes longer than the deadline."""
    if not polling.poll_until(condition, deadline_s, every_s=0.1):  # some look at every process, or ask an engine
        pytest.fail(f"waited {deadline_s:.0f} s for {what}")


@dataclass
class Lab:
    """The command line with one engine."""

    engine: str
    folder: Path
    notes: Path
    home: Path
    temporary: Path
    """Where its commands make temporary files."""
    token: str
    env: dict[str, str]
    python: list[str] = field(default_factory=lambda: [sys.executable])
    name: str = "one"
    """The cluster that every call is about, unless it says otherwise."""

    def start(self, verb: str, *words: str, folder: Path | None = None, **env: str) -> Command:
        """Start a verb; `--name` and `--engine` are added where it takes them and they are not there."""
        own = list(words)
        rest = own[own.index("--") :] if "--" in own else []
        own = own[: len(own) - len(rest)]
        if verb in _OF_A_CLUSTER and "--engine" not in own:
            own += ["--engine", self.engine]
        if verb in _OF_A_CLUSTER and not {"--name", "--all"} & set(own):
            own += ["--name", self.name]
        argv = [*self.python, "-m", "lab.cli.main", verb, *own, *rest]
        return Command(argv, folder or self.folder, {**self.env, **env}, self.notes)

    def __call__(self, verb: str, *words: str, timeout_s: float = DEADLINE_S, **more: Any) -> Ended:
        return self.start(verb, *words, **more).end(timeout_s)

    def script(self, text: str, name: str = "script.py") -> str:
        """Write a script into a folder of its own; returns its path."""
        path = self.folder / Path(name).stem / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    def status(self, name: str | None = None) -> dict[str, Any] | None:
        """What `lab status --json` says of a cluster."""
        found = self("status", "--json", "--name", name or self.name).json()
        return found[0] if found else None

    def last_result(self) -> dict[str, Any]:
        return self("show", "--json").json()

    def workers(self) -> set[int]:
        """Workers of this test's runs, by their pid on this machine: their folder is that of a run."""
        found = {pid for pid in pids() if "/run/work" in folder_of(pid)}
        if self.engine == "local":
            return {pid for pid in found if folder_of(pid).startswith(str(self.home))}
        mine = [container.split()[1] for container in docker_leftovers(self.owner) if container.startswith("container")]
        tops = {pid for name in mine for pid in container_pids(name)}
        return found & tops

    @property
    def owner(self) -> str:
        """Who the labels say owns what this test makes."""
        return f"{self.env['LOGNAME']}@{socket.gethostname()}"

    def kill_node(self, number: int) -> None:
        """Kill a node as `docker kill` does, or a power cut."""
        if self.engine == "docker":
            subprocess.run(["docker", "kill", f"lab-{self.name}-node{number}"], check=True, capture_output=True)
            return
        kill = (
            "import sys; from lab.engine.local.engine import LocalEngine as E; e = E(); "
            "e.kill(e.find(sys.argv[1])[0].nodes[int(sys.argv[2])])"
        )
        subprocess.run([*self.python, "-c", kill, self.name, str(number)], env=self.env, check=True, timeout=30)

    # -- what is left

    def mine(self) -> list[int]:
        """Processes of this machine that this test's commands started."""
        token = f"{TOKEN}={self.token}".encode()
        return [pid for pid in pids() if token in read(f"/proc/{pid}/environ").split(b"\0")]

    def leftovers(self) -> list[str]:
        """Everything of this test's that exists, a word each: container, network, volume, process, folder, file."""
        found = [f"process {pid}: {read(f'/proc/{pid}/cmdline')[:200]!r}" for pid in self.mine()]
        found += [f"file {path}" for path in (*self.home.glob("*"), *self.temporary.glob("*"))]
        if self.engine == "docker":
            found += docker_leftovers(self.owner)
        return found

    def locks_of_the_dead(self) -> list[str]:
        """Locks of which nobody has noticed yet that their holder was killed."""
        locks = Path(self.env["XDG_STATE_HOME"], "lab", "locks")
        return [f"lock {path.name}: {path.read_text()}" for path in locks.glob("*") if path.read_text()]


def docker_leftovers(owner: str) -> list[str]:
    """What carries an owner's label."""
    wanted = ["--filter", f"label=lab.cluster.owner={owner}"]
    found = []
    for kind, words in (
        ("container", ["ps", "-a", "--format", "{{.Names}}"]),
        ("network", ["network", "ls", "--format", "{{.Name}}"]),
        ("volume", ["volume", "ls", "--format", "{{.Name}}"]),
    ):
        said = subprocess.run(["docker", *words, *wanted], capture_output=True, text=True, check=True, timeout=60)
        found += [f"{kind} {name}" for name in said.stdout.split()]
    return found


def container_pids(name: str) -> list[int]:
    """Pids, on this machine, of what runs in a container; none if it does not run."""
    said = subprocess.run(["docker", "top", name, "-eo", "pid"], capture_output=True, text=True, timeout=60)
    return [int(word) for word in said.stdout.split() if word.isdecimal()]


def folder_of(pid: int) -> str:
    """Current folder of a process; empty if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def make_lab(engine: str, folder: Path, asking: pytest.FixtureRequest | None = None) -> Lab:
    """Make a command line. Local nodes import a stub of torch, unless the asking test is marked `torch`.

    The import of torch is most of what a local cluster costs. The long run always imports the real torch.
    """
    stub = asking is not None and not asking.node.get_closest_marker("torch") and not asking.config.getoption("--long")
    token = uuid.uuid4().hex[:8]
    home = Path(tempfile.mkdtemp(prefix="lab-", dir=SHORT))
    notes = folder / "said"
    notes.mkdir(parents=True)
    temporary = folder / "temporary"
    temporary.mkdir()
    (folder / "here").mkdir()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LAB_")},
        "PYTHONPATH": f"{STUB}{os.pathsep}{ROOT}" if stub and engine == "local" else str(ROOT),
        "XDG_STATE_HOME": str(folder / "state"),
        "LAB_LOCAL_HOME": str(home),
        "TMPDIR": str(temporary),
        "LOGNAME": f"{getpass.getuser()}-{token}",  # begins with that of all tests, see dev/test
        TOKEN: token,
    }
    return Lab(engine, folder / "here", notes, home, temporary, token, env, name=f"t{token}")


def put_away(lab: Lab) -> list[str]:
    """Remove whatever a test left; returns what `lab down` did not."""
    for pid in lab.mine():
        if b"lab.cli.main" in read(f"/proc/{pid}/cmdline"):
            os.kill(pid, signal.SIGKILL)
    if lab.leftovers():
        lab("down", "--all", "--engine", lab.engine)
    left = lab.leftovers()
    for pid in lab.mine():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(lab.home, ignore_errors=True)
    return left


ENGINES = [
    pytest.param("local", marks=pytest.mark.local),
    pytest.param("docker", marks=pytest.mark.docker),
]


def first(quick: Sequence[object], *rest: object) -> list[Any]:
    """Values of a parameter: some for every run, the rest for the long one."""
    return [*quick, *(pytest.param(value, marks=pytest.mark.long) for value in rest)]


@pytest.fixture(params=ENGINES)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """The command line on each engine; when the test is over nothing may be left that `lab down` does not remove."""
    if request.param == "docker":
        request.getfixturevalue("node_image")
    lab = make_lab(request.param, tmp_path, request)
    yield lab
    assert put_away(lab) == []


@pytest.fixture
def local_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """The command line on the local engine."""
    lab = make_lab("local", tmp_path, request)
    yield lab
    assert put_away(lab) == []


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lab]]:
    """The command line on an engine, with a cluster that tests of a module use one after the other."""
    labs: dict[str, Lab] = {}

    def keep(engine: str) -> Lab:
        if engine not in labs:
            if engine == "docker":
                request.getfixturevalue("node_image")
            labs[engine] = make_lab(engine, tmp_path_factory.mktemp(engine), request)
        return labs[engine]

    yield keep
    assert [left for lab in labs.values() for left in put_away(lab)] == []


def lent(lab: Lab, folder: Path) -> Iterator[Lab]:
    """Lend a kept command line to a test, in a folder of its own; nothing that the test started may go on."""
    here = folder / "here"
    here.mkdir()
    yield replace(lab, folder=here)
    for pid in lab.mine():
        if b"lab.cli.main" in read(f"/proc/{pid}/cmdline"):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lab.workers(), "the workers to be gone")


@pytest.fixture(params=ENGINES)
def shared_lab(request: pytest.FixtureRequest, kept: Callable[[str], Lab], tmp_path: Path) -> Iterator[Lab]:
    """The command line on each engine; its cluster stays for the next test of the module, which `up` makes sure of."""
    yield from lent(kept(request.param), tmp_path)


@pytest.fixture
def shared_local_lab(kept: Callable[[str], Lab], tmp_path: Path) -> Iterator[Lab]:
    """The command line on the local engine, whose cluster stays for the next test of the module."""
    yield from lent(kept("local"), tmp_path)


@pytest.fixture
def docker_lab(tmp_path: Path, node_image: str) -> Iterator[Lab]:
    """The command line on the docker engine."""
    lab = make_lab("docker", tmp_path)
    yield lab
    assert put_away(lab) == []
