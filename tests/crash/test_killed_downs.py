"""`lab down` killed with SIGKILL at several points: the next command finishes what it began, at once, and says so."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from tests.crash.conftest import Command, Lab, first
from tests.golden import golden

pytestmark = pytest.mark.half

QUICK = "import os\nprint('ran on', os.environ['RANK'], flush=True)\n"
PATIENCE_S = 60.0
"""Less than the 90 s that an agent is given to answer; making a cluster of two nodes takes 4 s on an idle machine."""

KILLED_DOWN = """
import os, signal, sys, threading, time
from lab.engine.docker import state
remove_one, lock, calls = state._remove_one, threading.Lock(), 0
def kill():
    time.sleep({delay_s})  # the engine works on what it was asked for meanwhile
    os.kill(os.getpid(), signal.SIGKILL)
def counted(connection, path):
    global calls
    with lock:
        calls += 1
        if calls == {number}:
            threading.Thread(target=kill).start() if {delay_s} else kill()
    return remove_one(connection, path)
state._remove_one = counted
from lab.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Requests for a cluster of two nodes: 1 and 2 remove them, 3 the network, 4 the volume."""

KILLED_AT_THE_LOCK = """
import os, signal, sys
from lab.run.cluster_slot import ClusterSlot
ClusterSlot.remove = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from lab.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

POINTS = [(2, 1, 0.05)]
MORE_POINTS = [
    (1, 2, 0.0),
    *((2, 1, delay_s) for delay_s in (0.0, 0.005, 0.02, 0.1, 0.2)),
    *((2, 2, delay_s) for delay_s in (0.01, 0.3)),
    *((2, 3, delay_s) for delay_s in (0.0, 0.05)),
    *((2, 4, delay_s) for delay_s in (0.0, 0.02)),
]
"""Nodes, the number of the request, and how long after it."""


def run_down(lab: Lab, program: str) -> None:
    """Run `lab down`, which kills itself."""
    words = ["down", "--engine", lab.engine, "--name", lab.name]
    ended = Command([sys.executable, "-c", program, *words], lab.folder, lab.env, lab.notes).end()
    assert ended.code == -signal.SIGKILL, ended.said


@pytest.mark.parametrize("point", first(POINTS, *MORE_POINTS), ids=str)
def test_up_after_a_killed_down_makes_the_cluster_at_once_and_says_why_and_down_ends_what_another_began(
    docker_lab: Lab, point: tuple[int, int, float]
) -> None:
    lab = docker_lab
    nodes, number, delay_s = point
    assert lab("up", "--nodes", str(nodes)).code == 0
    run_down(lab, KILLED_DOWN.format(number=number, delay_s=delay_s))
    began = time.monotonic()

    ended = lab("up", "--nodes", str(nodes))

    assert ended.code == 0, ended.said
    assert time.monotonic() - began < PATIENCE_S
    assert golden(1, lab.name) in ended.err
    assert "up in" in ended.out
    assert lab.status()["state"] == "ready"  # type: ignore[index]
    assert lab("run", lab.script(QUICK)).code == 0
    run_down(lab, KILLED_DOWN.format(number=1, delay_s=0.02))
    assert lab("down").code == 0
    assert lab.leftovers() == []


@pytest.mark.long
@pytest.mark.parametrize("then", ["run", "test"])
def test_whatever_comes_after_a_killed_down_ends_what_it_began(docker_lab: Lab, then: str) -> None:
    lab = docker_lab
    assert lab("up", "--nodes", "1").code == 0
    run_down(lab, KILLED_DOWN.format(number=1, delay_s=0.02))
    ended = lab(then, lab.script(QUICK), "--nodes", "1", timeout_s=PATIENCE_S)
    assert ended.code == 0, ended.said
    assert lab("down", "--all").code == 0
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_a_cluster_whose_removal_was_cut_before_it_began_is_removed_too(lab: Lab) -> None:
    assert lab("up", "--nodes", "1").code == 0
    run_down(lab, KILLED_AT_THE_LOCK)
    ended = lab("up", "--nodes", "1")
    assert ended.code == 0, ended.said
    assert golden(1) in ended.err
    assert lab("run", lab.script(QUICK)).code == 0


LOST_AFTER_THE_LOOK = """
import subprocess, sys
from lab.engine.docker.engine import DockerEngine
connect = DockerEngine.connect
def late(engine, cluster, nodes):
    subprocess.run(["docker", "kill", *(node.handle for node in nodes)], check=True, capture_output=True)
    return connect(engine, cluster, nodes)
DockerEngine.connect = late
from lab.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_nodes_that_end_while_they_are_looked_at_are_not_waited_for(docker_lab: Lab) -> None:
    lab = docker_lab
    assert lab("up", "--nodes", "1").code == 0
    run = lab.start("run", lab.script("import time\nprint('holding', flush=True)\ntime.sleep(600)", "hold.py"))
    run.wait_for("holding")
    run.send(signal.SIGKILL)
    run.end()
    words = ["up", "--nodes", "1", "--engine", lab.engine, "--name", lab.name]

    up = Command([sys.executable, "-c", LOST_AFTER_THE_LOOK, *words], lab.folder, lab.env, lab.notes)
    ended = up.end(PATIENCE_S)

    assert ended.code == 0, ended.said
    assert golden(1) in ended.err
    assert lab.status()["state"] == "ready"  # type: ignore[index]
