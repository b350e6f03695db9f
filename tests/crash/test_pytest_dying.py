"""pytest killed, interrupted or ended from inside while its tests use clusters: nothing of theirs is left."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.crash.conftest import HOLD, Command, Lab, read, wait_until
from tests.golden import golden
from tests.pytest_process import pytest_words

pytestmark = pytest.mark.half

HOLDS = "def test_holds(lab_run):\n    lab_run('hold.py', nodes=2, timeout_s=100)\n"
GUARD = b"lab.features.pytest.guard"


def start(lab: Lab, test: str = HOLDS) -> Command:
    """Start a session of pytest; returns when the ranks of its test run."""
    (lab.folder / "hold.py").write_text(HOLD)
    (lab.folder / "test_it.py").write_text(test)
    env = {name: value for name, value in lab.env.items() if not name.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = Command(pytest_words("--lab-engine", lab.engine), lab.folder, env, lab.notes)
    wait_until(lambda: holding(lab.folder) or command.process.poll() is not None, "the ranks of the test to run")
    assert holding(lab.folder), command.said
    return command


def holding(folder: Path) -> bool:
    return sum(b"holding" in path.read_bytes() for path in folder.glob(".lab/runs/*/logs/rank*.log")) == 2


def guards(lab: Lab) -> list[int]:
    return [pid for pid in lab.mine() if GUARD in read(f"/proc/{pid}/cmdline")]


@pytest.mark.local_first
def test_nothing_is_left_when_pytest_is_killed(lab: Lab):
    session = start(lab)
    session.send(signal.SIGKILL)
    session.end()
    wait_until(lambda: not lab.leftovers(), f"the guard to remove {lab.leftovers()}")
    assert not lab.locks_of_the_dead()


@pytest.mark.local_first
def test_whoever_makes_a_cluster_next_removes_what_pytest_and_its_guard_left(lab: Lab):
    session = start(lab)
    for pid in (*guards(lab), session.process.pid):
        os.kill(pid, signal.SIGKILL)
    session.end()
    ended = lab("run", lab.script("print('next')"), "--nodes", "1")
    assert ended.code == 0, ended.said
    assert re.search(golden(1), ended.err), ended.err
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_sigterm_shows_where_the_ranks_of_the_running_test_were(lab: Lab):
    session = start(lab, HOLDS + "def test_later(cluster):\n    open('later', 'w')\n")
    session.send(signal.SIGTERM)
    ended = session.end()
    assert ended.code == pytest.ExitCode.INTERRUPTED, ended.said
    assert re.search(golden(1), ended.out), ended.said
    wait_until(lambda: not lab.leftovers(), "what is left to go")
    assert not (lab.folder / "later").exists()


@pytest.mark.long
@pytest.mark.local_first
def test_nothing_is_left_when_the_terminal_of_pytest_is_closed(lab: Lab):
    session = start(lab)
    session.send(signal.SIGHUP)
    session.end()
    wait_until(lambda: not lab.leftovers(), "the guard to remove what is left")


@pytest.mark.long
@pytest.mark.local_first
def test_ctrl_c_ends_the_session_and_nothing_is_left_by_then(lab: Lab):
    session = start(lab, HOLDS + "def test_later(cluster):\n    open('later', 'w')\n")
    session.send(signal.SIGINT)
    session.send(signal.SIGINT)
    ended = session.end()
    assert ended.code == pytest.ExitCode.INTERRUPTED, ended.said
    wait_until(lambda: not lab.leftovers(), "what is left to go")
    assert not (lab.folder / "later").exists()


ENDS = """
import os, threading, time

def end():
    while not os.path.exists("now"):
        time.sleep(0.01)
    os._exit(1)

def test_ends(lab_run):
    threading.Thread(target=end).start()
    lab_run("hold.py", nodes=2, timeout_s=100)
"""


@pytest.mark.long
@pytest.mark.local_first
def test_nothing_is_left_when_a_thread_ends_the_process(lab: Lab):
    """As pytest-timeout does it."""
    session = start(lab, ENDS)
    (lab.folder / "now").touch()
    assert session.end().code == 1
    wait_until(lambda: not lab.leftovers(), "the guard to remove what is left")
