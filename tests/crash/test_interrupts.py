"""Ctrl-C and SIGTERM cancel what is being done, and nothing else."""

from __future__ import annotations

import signal

import pytest

from tests.crash.conftest import HOLD, Lab, first, wait_until

pytestmark = pytest.mark.half

INTERRUPTED = (130, -signal.SIGINT)
"""Python ends itself by SIGINT, which a shell shows as 130 too, if the signal comes while it imports."""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("holding", os.environ["RANK"], flush=True)
time.sleep(600)
"""
FINE = "print('fine', flush=True)\n"


@pytest.mark.local_first
@pytest.mark.parametrize(
    "number", first([signal.SIGINT], signal.SIGTERM, signal.SIGHUP), ids=["ctrl-c", "term", "hangup"]
)
def test_an_interrupt_cancels_the_run_and_leaves_the_cluster(shared_lab: Lab, number: int):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(STUBBORN, "hold.py"))
    run.wait_for("holding", 2)
    assert len(lab.workers()) == 2
    run.send(number)
    ended = run.end()
    assert ended.code == 130
    assert "interrupted after" in ended.out
    assert "Traceback" not in ended.err

    result = lab.last_result()
    assert (result["verdict"], result["exit_code"], result["culprit"]) == ("error", 130, None)
    assert result["reason"].startswith("interrupted after")
    assert len(result["ranks"]) == 2

    assert lab.status()["state"] == "ready"
    assert lab.status()["busy"] is None
    wait_until(lambda: not lab.workers(), "the workers to be gone")
    again = lab("run", lab.script(FINE, "fine.py"))
    assert again.code == 0
    assert again.out.count("| fine") == 2


@pytest.mark.local_first
def test_an_interrupted_run_with_a_cluster_of_its_own_leaves_nothing(lab: Lab):
    run = lab.start("run", lab.script(HOLD), "--nodes", "2")
    run.wait_for("holding", 2)
    run.send(signal.SIGINT)
    ended = run.end()
    assert ended.code in INTERRUPTED
    assert lab.leftovers() == []


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("up", signal.SIGINT),
        ("run", signal.SIGTERM),
        pytest.param("up", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("run", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_while_nodes_start_leaves_nothing(lab: Lab, verb: str, number: int):
    words = ["--nodes", "2"] if verb == "up" else [lab.script(HOLD), "--nodes", "2"]
    command = lab.start(verb, *words)
    command.wait_for("importing torch")
    command.send(number)
    ended = command.end()
    assert ended.code in INTERRUPTED
    assert "Traceback" not in ended.said
    assert "interrupted" in ended.err
    assert lab.leftovers() == []


@pytest.mark.parametrize("moment", first([3], 1, 5, 7))
def test_an_interrupt_at_any_moment_of_up_leaves_nothing(lab: Lab, moment: int):
    command = lab.start("up", "--nodes", "2")
    command.lives_on_for(moment * 0.15)
    command.send(signal.SIGINT)
    ended = command.end()
    if ended.code == 0:  # it was faster
        assert lab.status()["state"] == "ready"
        assert lab("down").code == 0
    else:
        assert ended.code in INTERRUPTED, ended.said
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_an_interrupted_wait_for_a_busy_cluster_disturbs_nobody(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    first = lab.start("run", lab.script(HOLD, "hold.py"))
    first.wait_for("holding", 2)
    second = lab.start("run", lab.script(FINE, "fine.py"), "--wait", "60s")
    assert second.lives_on_for(1.0)
    second.send(signal.SIGINT)
    assert second.end().code in INTERRUPTED
    assert first.process.poll() is None
    first.send(signal.SIGINT)
    assert first.end().code in INTERRUPTED


@pytest.mark.local_first
@pytest.mark.parametrize("verb", ["run", pytest.param("up", marks=pytest.mark.long)])
def test_ctrl_c_twice_while_nodes_start_leaves_nothing(lab: Lab, verb: str):
    words = ["--nodes", "2"] if verb == "up" else [lab.script(HOLD), "--nodes", "2"]
    command = lab.start(verb, *words)
    command.wait_for("importing torch")
    command.send(signal.SIGINT)
    command.lives_on_for(0.03)
    command.send(signal.SIGINT)
    ended = command.end()
    assert ended.code in INTERRUPTED
    assert "Traceback" not in ended.said
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_ctrl_c_twice_still_leaves_a_usable_cluster(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(STUBBORN, "hold.py"))
    run.wait_for("holding", 2)
    run.send(signal.SIGINT)
    run.lives_on_for(0.02)
    run.send(signal.SIGINT)
    ended = run.end()
    assert ended.code in INTERRUPTED
    assert "Traceback" not in ended.said
    assert lab("run", lab.script(FINE, "fine.py")).code == 0
