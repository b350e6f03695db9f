"""The engine itself goes away in mid-run, or was never there."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.conftest import HOLD, Command, Lab, read, wait_until
from tests.golden import golden
from tests.short import SHORT

pytestmark = pytest.mark.half


class Proxy:
    """Passes a Docker engine's socket on, until it is cut: then nobody answers at its path any more."""

    def __init__(self, path: str, engine: str) -> None:
        self.path, self.engine = path, engine
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._cut = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(self.engine)
            with self._lock:
                self._open += [client, server]
                if self._cut:
                    client.close()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Die as a killed engine does: the path stays, nobody listens, every connection ends."""
        with self._lock:
            self._cut = True
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        pytest.skip(f"needs a Docker engine on a Unix socket, not {host}")
    with tempfile.TemporaryDirectory(prefix="lab-", dir=SHORT) as folder:
        proxy = Proxy(f"{folder}/engine.sock", host.removeprefix("unix://"))
        yield proxy
        proxy.cut()


def test_a_docker_engine_that_dies_in_mid_run_is_an_error_in_one_sentence(docker_lab: Lab, proxy: Proxy):
    lab = docker_lab
    through = {"DOCKER_HOST": f"unix://{proxy.path}"}
    assert lab("up", "--nodes", "2", **through).code == 0
    run = lab.start("run", lab.script(HOLD, "hold.py"), **through)
    run.wait_for("holding", 2)
    proxy.cut()
    ended = run.end()
    assert ended.code == 3, ended.said
    assert "error" in ended.out
    assert golden(1) in ended.out
    assert "Traceback" not in ended.said
    result = lab.last_result()
    assert (result["verdict"], result["exit_code"]) == ("error", 3)
    assert result["reason"].count("\n") == 0

    for verb in (("status", "--engine", "docker"), ("down",), ("up",), ("run", lab.script("print(1)", "one.py"))):
        ended = lab(*verb, **through)
        assert ended.code == 3, (verb, ended.said)
        assert "Traceback" not in ended.said
        assert "hint:" in ended.err

    assert lab("down").code == 0  # the real engine is still there, and so are its containers
    assert lab.leftovers() == []


@pytest.mark.long
def test_a_docker_engine_that_dies_in_a_run_with_a_cluster_of_its_own_says_how_to_remove_it(
    docker_lab: Lab, proxy: Proxy
):
    lab = docker_lab
    run = lab.start("run", lab.script(HOLD, "hold.py"), "--nodes", "2", DOCKER_HOST=f"unix://{proxy.path}")
    run.wait_for("holding", 2)
    proxy.cut()
    ended = run.end()
    assert ended.code == 3, ended.said
    assert golden(1) in ended.out
    assert "lab down" in ended.err
    assert "Traceback" not in ended.said
    assert lab.leftovers() != []
    assert lab("down").code == 0
    assert lab.leftovers() == []


def test_a_docker_engine_that_dies_while_nodes_start_is_an_error_in_one_sentence(docker_lab: Lab, proxy: Proxy):
    lab = docker_lab
    up = lab.start("up", "--nodes", "2", DOCKER_HOST=f"unix://{proxy.path}")
    up.wait_for("importing torch")
    proxy.cut()
    ended = up.end()
    assert ended.code == 3, ended.said
    assert "Traceback" not in ended.said
    assert "hint:" in ended.err
    assert lab("down").code == 0
    assert lab.leftovers() == []


def test_the_local_engine_that_dies_in_mid_run_is_an_error_in_one_sentence(local_lab: Lab):
    lab = local_lab
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(HOLD, "hold.py"))
    run.wait_for("holding", 2)
    zygotes = [pid for pid in lab.mine() if b"node.local_nodes" in read(f"/proc/{pid}/cmdline") and parent(pid) == 1]
    assert len(zygotes) == 1
    os.kill(zygotes[0], signal.SIGKILL)
    ended = run.end()
    assert ended.code == 3, ended.said
    assert golden(1) in ended.out
    assert "Traceback" not in ended.said
    wait_until(lambda: not lab.mine(), "every process of the cluster to end")
    assert lab.status()["state"] == "dead"
    assert "removed" in lab("down").out
    assert lab.leftovers() == []


def parent(pid: int) -> int:
    return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


# -- no engine at all


NOBODY = "unix:///tmp/lab-nobody-listens-here.sock"


@pytest.mark.parametrize("verb", ["up", "run", "status", "exec", "shell", "down", "doctor"])
def test_without_a_docker_engine_every_verb_says_so_and_what_to_do(local_lab: Lab, verb: str):
    words = {"run": [local_lab.script("print(1)")], "exec": ["node0", "--", "true"]}.get(verb, [])
    ended = local_lab(verb, *with_engine(words, "docker"), DOCKER_HOST=NOBODY)
    assert ended.code == 3, ended.said
    assert golden(1) in ended.said
    assert "--engine local" in ended.said
    assert "Traceback" not in ended.said


def with_engine(words: list[str], engine: str) -> list[str]:
    return ["--engine", engine, *words]


def test_auto_falls_back_to_the_local_engine_and_says_so_in_one_line(shared_local_lab: Lab):
    lab = shared_local_lab
    ended = lab("up", "--nodes", "1", "--engine", "auto", DOCKER_HOST=NOBODY)
    assert ended.code == 0, ended.said
    said = [line for line in ended.err.splitlines() if "using the local engine" in line]
    assert said == [golden(1)]
    assert lab("run", "--engine", "auto", lab.script("print('ok')"), DOCKER_HOST=NOBODY).code == 0


def test_records_can_be_read_without_any_engine(shared_local_lab: Lab):
    lab = shared_local_lab
    assert lab("up", "--nodes", "1").code == 0
    assert lab("run", lab.script("print('on record')")).code == 0
    for verb in ("runs", "show", "logs"):
        ended = lab(verb, DOCKER_HOST=NOBODY, PATH="/nonexistent")
        assert ended.code == 0, ended.said
    assert "on record" in lab("logs", DOCKER_HOST=NOBODY).out


def test_down_says_that_something_may_be_left_on_an_engine_that_does_not_answer(shared_local_lab: Lab):
    lab, missing = shared_local_lab, "nowhere"
    ended = lab("down", "--engine", "auto", "--name", missing, DOCKER_HOST=NOBODY)
    assert ended.code == 3
    assert ended.out == ""
    assert golden(1, missing) in ended.err
    ended = lab("down", "--engine", "local", "--name", missing, DOCKER_HOST=NOBODY)
    assert ended.out == "nothing to remove\n"
    assert lab("up", "--nodes", "1").code == 0
    ended = lab("down", "--engine", "auto", DOCKER_HOST=NOBODY)
    assert ended.code == 0
    assert f"removed {lab.name}: 1 node" in ended.out
    assert golden(2) in ended.err


@pytest.fixture
def without_torch(local_lab: Lab, tmp_path: Path) -> Lab:
    """The command line in a Python that has everything but torch."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for folder in (Path(entry) for entry in sys.path if "-packages" in entry):
        for path in folder.iterdir():
            if not path.name.startswith("torch") and not (packages / path.name).exists():
                (packages / path.name).symlink_to(path)
    local_lab.env["PYTHONPATH"] += f":{packages}"
    local_lab.python = [sys.executable, "-S"]
    yield local_lab
    local_lab.python = [sys.executable]


@pytest.mark.torch
@pytest.mark.parametrize("choice", ["auto", "local"])
@pytest.mark.parametrize("verb", ["up", "run", "doctor"])
def test_without_docker_and_without_torch_a_fix_is_named(without_torch: Lab, verb: str, choice: str):
    lab = without_torch
    words = [lab.script("print(1)")] if verb == "run" else []
    ended = lab(verb, *with_engine(words, choice), DOCKER_HOST=NOBODY)
    assert ended.code == 3, ended.said
    assert "torch" in ended.said
    assert "pip install 'torch-lab[local]'" in ended.said
    assert "Traceback" not in ended.said
    if choice == "auto":
        assert golden(1) in ended.said


IMPATIENT = """
import sys
from lab.engine.docker import connection
connection._FIRST_ANSWER_S = 2
from lab.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_silent_socket_is_not_waited_for_without_end(local_lab: Lab):
    """A Docker engine that accepts and says nothing, as one that is stuck does."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir=SHORT) as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{folder}/engine.sock")
        silent.listen(8)
        env = {**local_lab.env, "DOCKER_HOST": f"unix://{folder}/engine.sock"}
        words = [sys.executable, "-c", IMPATIENT, "status", "--engine", "docker"]
        ended = Command(words, local_lab.folder, env, local_lab.notes).end(90)
    assert ended.code == 3, ended.said
    assert "Traceback" not in ended.said
