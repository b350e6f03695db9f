"""A node is paused, cut off, stopped or restarted in mid-run, or a worker stopped: it is told; the next run is well."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.crash.conftest import Command, Lab

pytestmark = pytest.mark.torch

TOGETHER = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
print("met as process", os.getpid(), flush=True)
while True:
    dist.all_reduce(torch.ones(4))
    time.sleep(0.1)
"""
TIMEOUT = ("--timeout", "8s")


@dataclass(frozen=True)
class Fault:
    """Something that comes over a node from outside."""

    blow: Callable[[Lab, Command, int], None]
    """Deals it to the node of that number, or to its rank, while a run goes on."""
    told: str
    """What the verdict says of it, with {0} where the number is."""
    code: int
    """The exit code of the run."""


def docker(*words: str) -> None:
    subprocess.run(["docker", *words], check=True, capture_output=True, timeout=60)


def pause(container: str) -> None:
    done = subprocess.run(["docker", "pause", container], capture_output=True, text=True, timeout=60)
    if "unable to freeze" in done.stderr:
        pytest.skip("needs kernel with a freezer for control groups")
    assert done.returncode == 0, done.stderr


def begin(lab: Lab) -> Command:
    """A run of three ranks on three nodes that work together until something happens."""
    assert lab("up", "--nodes", "3").code == 0
    run = lab.start("run", lab.script(TOGETHER), *TIMEOUT)
    run.wait_for("| met", 3)
    return run


def is_hung_because(lab: Lab, run: Command, what: str, node: int = 1) -> None:
    """It was told while the run went on, it is the verdict's reason, and nobody else is blamed."""
    run.wait_for(what)
    is_blamed(lab, run, what, node, code=4)


def is_blamed(lab: Lab, run: Command, what: str, node: int, code: int = 1) -> None:
    """It is the verdict's reason, and the node and its rank are blamed."""
    ended = run.end()
    assert ended.code == code, ended.said
    assert not re.search("^Traceback", ended.said, re.MULTILINE), ended.said
    result = lab.last_result()
    assert what in result["reason"]
    assert (result["culprit"]["rank"], result["culprit"]["node"]) == (node, f"node{node}")


def signal_worker(lab: Lab, run: Command, node: int, name: str) -> None:
    found = re.search(rf"node{node}/rank{node} \| met as process (\d+)", run.said)
    assert found is not None
    send(lab, node, name, found[1])


def signal_agent(lab: Lab, node: int, name: str) -> None:
    if lab.engine == "docker":
        send(lab, node, name, "$(cat /proc/1/task/1/children)")
        return
    from lab.engine.agent_holder import agent_pid
    from lab.plan.cluster import Node

    handle = str(lab.home / lab.name / f"node{node}.sock")
    send(lab, node, name, str(agent_pid(Node(name=f"node{node}", node_rank=node, handle=handle, address=""))))


def send(lab: Lab, node: int, name: str, pid: str) -> None:
    """Send a signal to a process of a node."""
    if lab.engine == "docker":  # whose command ends with the node, where that is what it does
        command = ["docker", "exec", f"lab-{lab.name}-node{node}", "sh", "-c", f"kill -{name} {pid}"]
        subprocess.run(command, check=False, capture_output=True, timeout=60)
    else:
        os.kill(int(pid), getattr(signal, f"SIG{name}"))


def next_run_is_well(lab: Lab, why: str = "") -> None:
    """On the cluster as it is, or on another one, where it is said why."""
    ended = lab("run", lab.script("print('fine')", "fine.py"))
    assert ended.code == 0, ended.said
    assert ("removed the remains of cluster" in ended.err) == bool(why)
    assert why in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("pause",), "node1 was paused", id="pause", marks=pytest.mark.long),
        pytest.param(
            ("network", "disconnect", "lab-{}"),
            "node1 was disconnected from its network",
            id="disconnect",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_node_that_is_paused_or_cut_off_is_told_as_that(docker_lab: Lab, words: tuple[str, ...], told: str) -> None:
    lab = docker_lab
    run = begin(lab)
    if words == ("pause",):
        pause(f"lab-{lab.name}-node1")
    else:
        docker(*(word.format(lab.name) for word in words), f"lab-{lab.name}-node1")
    is_hung_because(lab, run, told)
    next_run_is_well(lab, re.sub("from.*", "", told).strip())


@pytest.mark.long
def test_a_node_that_was_restarted_is_not_run_on(docker_lab: Lab) -> None:
    lab = docker_lab
    run = begin(lab)
    docker("restart", "--time", "0", f"lab-{lab.name}-node1")
    ended = run.end()
    assert ended.code == 1, ended.said
    assert lab.last_result()["culprit"]["node"] == "node1"
    next_run_is_well(lab, "node1")


@pytest.mark.local_first
def test_a_node_whose_agent_was_stopped_is_told_as_that(lab: Lab) -> None:
    run = begin(lab)
    signal_agent(lab, 1, "STOP")
    is_hung_because(lab, run, "node1 was stopped: its agent received SIGSTOP")
    next_run_is_well(lab, "node1 was halted" if lab.engine == "local" else "node1 was stopped")


@pytest.mark.long
def test_a_worker_that_a_signal_stopped_is_told_as_that(lab: Lab) -> None:
    run = begin(lab)
    signal_worker(lab, run, 1, "STOP")
    is_hung_because(lab, run, "rank 1 (node1) was stopped by SIGSTOP")
    next_run_is_well(lab)


@pytest.mark.long
def test_a_node_or_worker_that_goes_on_again_is_not_told_of(lab: Lab) -> None:
    run = begin(lab)
    for name, told in (("STOP", "rank 1 (node1) was stopped"), ("CONT", "rank 1 (node1) continues")):
        signal_worker(lab, run, 1, name)
        run.wait_for(told)
    assert run.end().code == 4
    assert "SIGSTOP" not in lab.last_result()["reason"]


HANGS = 4
"""The exit code where something only kept ranks from going on."""
SIGNALS = {"KILL": "was killed (SIGKILL)", "SEGV": "was killed (SIGSEGV)", "TERM": "ended with exit code 0"}
"""What is told of a node whose agent got them: it leaves when it is asked to."""
OF_CONTAINERS = {
    "kill": (("kill",), "was killed (SIGKILL)", 1),
    "rm": (("rm", "--force"), "was removed", 1),
    "stop": (("stop",), "ended with exit code 0", 1),
    "restart": (("restart", "--time", "0"), "", 1),
    "pause": (("pause",), "was paused", HANGS),
    "disconnect": (("network", "disconnect", "lab-{}"), "was disconnected from its network", HANGS),
}


def of_container(kind: str) -> Fault:
    words, told, code = OF_CONTAINERS[kind]

    def blow(lab: Lab, _: Command, node: int) -> None:
        container = f"lab-{lab.name}-node{node}"
        if kind == "pause":
            pause(container)
        else:
            docker(*(word.format(lab.name) for word in words), container)

    return Fault(blow, f"node{{0}} {told}".strip(), code)


def of_agent(name: str) -> Fault:
    told = "was stopped: its agent received SIGSTOP" if name == "STOP" else SIGNALS[name]
    code = HANGS if name == "STOP" else 1
    return Fault(lambda lab, _, node: signal_agent(lab, node, name), f"node{{0}} {told}", code)


def of_worker(name: str) -> Fault:
    told = "stopped" if name == "STOP" else "killed"
    return Fault(
        lambda lab, run, node: signal_worker(lab, run, node, name),
        f"rank {{0}} (node{{0}}) was {told} by SIG{name}",
        HANGS if name == "STOP" else 1,
    )


FAULTS = {
    **{f"agent SIG{name}": of_agent(name) for name in (*SIGNALS, "STOP")},
    **{f"worker SIG{name}": of_worker(name) for name in ("KILL", "SEGV", "TERM", "INT", "ABRT", "STOP")},
    "node": Fault(lambda lab, _, node: lab.kill_node(node), "node{0} was killed (SIGKILL)", 1),
}
"""On each engine."""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", FAULTS)
def test_whatever_comes_over_a_node_it_is_named(lab: Lab, kind: str) -> None:
    is_told_on_every_node(lab, FAULTS[kind])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", OF_CONTAINERS)
def test_whatever_is_done_to_a_container_its_node_is_named(docker_lab: Lab, kind: str) -> None:
    is_told_on_every_node(docker_lab, of_container(kind))


def is_told_on_every_node(lab: Lab, fault: Fault) -> None:
    for node in range(3):
        run = begin(lab)
        fault.blow(lab, run, node)
        is_blamed(lab, run, fault.told.format(node), node, fault.code)
        ended = lab("run", lab.script("print('fine')", "fine.py"))
        assert ended.code == 0, ended.said
