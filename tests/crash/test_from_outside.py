"""A node is paused, cut off, stopped or restarted in mid-run, or a worker stopped: it is told; the next run is well."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.crash.conftest import Command, Lab

TOGETHER = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
print("met as process", os.getpid(), flush=True)
while True:
    dist.all_reduce(torch.ones(4))
    time.sleep(0.02)
"""
TIMEOUT = ("--timeout", "8s")


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


def is_hung_because(lab: Lab, run: Command, what: str) -> None:
    """It was told while the run went on, it is the verdict's reason, and nobody else is blamed."""
    run.wait_for(what)
    ended = run.end()
    assert ended.code == 4, ended.said
    assert "Traceback" not in ended.said
    result = lab.last_result()
    assert what in result["reason"]
    assert (result["culprit"]["rank"], result["culprit"]["node"]) == (1, "node1")


def next_run_is_well(lab: Lab, why: str = "") -> None:
    """On the cluster as it is, or on another one, where it is said why."""
    ended = lab("run", lab.script("print('fine')", "fine.py"))
    assert ended.code == 0, ended.said
    assert ("removed what was left of cluster" in ended.err) == bool(why)
    assert why in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("pause",), "node1 was paused", id="pause", marks=pytest.mark.long),
        pytest.param(("network", "disconnect", "lab-{}"), "node1 was disconnected from its network", id="disconnect"),
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


def test_a_node_whose_agent_was_stopped_is_told_as_that(local_lab: Lab) -> None:
    from lab.engine.local.channel import agent_pid
    from lab.plan.cluster import Node

    run = begin(local_lab)
    handle = str(local_lab.home / local_lab.name / "node1.sock")
    os.kill(agent_pid(Node(name="node1", node_rank=1, handle=handle, address="")), signal.SIGSTOP)
    is_hung_because(local_lab, run, "node1 was stopped")
    next_run_is_well(local_lab, "node1 was stopped")


@pytest.mark.local_first
def test_a_worker_that_a_signal_stopped_is_told_as_that(lab: Lab) -> None:
    run = begin(lab)
    found = re.search(r"node1/rank1 \| met as process (\d+)", run.said)
    assert found is not None
    if lab.engine == "docker":
        docker("exec", f"lab-{lab.name}-node1", "sh", "-c", f"kill -STOP {found[1]}")
    else:
        os.kill(int(found[1]), signal.SIGSTOP)
    is_hung_because(lab, run, "rank 1 (node1) was stopped by SIGSTOP")
    next_run_is_well(lab)


@pytest.mark.long
def test_a_node_or_worker_that_goes_on_again_is_not_told_of(lab: Lab) -> None:
    run = begin(lab)
    found = re.search(r"node1/rank1 \| met as process (\d+)", run.said)
    assert found is not None
    for name, told in (("STOP", "rank 1 (node1) was stopped"), ("CONT", "rank 1 (node1) goes on")):
        if lab.engine == "docker":
            docker("exec", f"lab-{lab.name}-node1", "sh", "-c", f"kill -{name} {found[1]}")
        else:
            os.kill(int(found[1]), getattr(signal, f"SIG{name}"))
        run.wait_for(told)
    assert run.end().code == 4
    assert "SIGSTOP" not in lab.last_result()["reason"]
