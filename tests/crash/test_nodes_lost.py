"""A node dies during a run, as with `docker kill` or a power cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.crash.conftest import wait_until
from tests.golden import golden

pytestmark = pytest.mark.half

MEET = """
import time
import torch.distributed as dist
dist.init_process_group("gloo")
print("met", dist.get_rank(), flush=True)
if dist.get_rank() == 1:
    time.sleep(600)
dist.barrier()
"""

KILLS_ITS_AGENT = """
import os, signal, subprocess, sys, time
if os.environ["RANK"] == "1":
    daemon = "import os, time\\nif os.fork(): os._exit(0)\\nprint('pid', os.getpid(), flush=True)\\ntime.sleep(600)"
    child = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    subprocess.run([sys.executable, "-c", daemon], env={})
    print("pid", child.pid, flush=True)
    time.sleep(0.5)
    os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.fixture
def after_the_loss(lab):
    """A cluster whose node1 was killed during the run; the run that ended of it."""
    script = lab.script(MEET)
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", script)
    run.wait_for("| met", 2)
    lab.kill_node(1)
    return lab, run.end()


@pytest.mark.torch
def test_a_killed_node_is_named_as_the_culprit(after_the_loss):
    lab, ended = after_the_loss
    assert ended.code == 1
    assert golden(1) in ended.out
    assert "Traceback" not in ended.err

    result = lab.last_result()
    assert result["verdict"] == "failed"
    assert (result["culprit"]["node"], result["culprit"]["rank"]) == ("node1", 1)
    assert result["ranks"][1]["error"] == golden(2)

    status = lab.status()
    assert status["state"] == "partial"
    assert [node["state"] == "running" for node in status["nodes"]] == [True, False]

    assert lab("down").code == 0
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_a_cluster_that_lost_a_node_can_be_rebuilt_and_has_the_shape_that_it_had(lab):
    assert lab("up", "--nodes", "2", "--env", "KEPT=yes").code == 0
    lab.kill_node(1)
    again = lab("up")
    assert again.code == 0
    assert golden(1, lab.name) in again.err
    assert golden(2) in again.err
    status = lab.status()
    assert status["state"] == "ready"
    assert (len(status["nodes"]), status["shape"]["env"]) == (2, {"KEPT": "yes"})
    assert lab("run", lab.script("print('fine')", "fine.py")).code == 0


@pytest.mark.local_first
def test_the_others_are_stopped_when_a_node_is_lost_and_the_next_run_is_not_on_what_is_left(lab):
    script = lab.script("import time\nprint('alone', flush=True)\ntime.sleep(600)\n")
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", script)
    run.wait_for("alone", 2)
    lab.kill_node(1)
    assert run.end().code == 1
    result = lab.last_result()
    assert result["ranks"][0]["stopped"]
    assert result["culprit"]["node"] == "node1"
    assert not lab.workers()

    ended = lab("run", lab.script("print('ran')", "next.py"))
    assert ended.code == 0
    assert golden(1, lab.name) in ended.err


@pytest.mark.local_first
def test_the_only_node_killed_is_named_too(lab):
    script = lab.script("import time\nprint('alone', flush=True)\ntime.sleep(600)\n")
    run = lab.start("run", script, "--nodes", "1")
    run.wait_for("alone")
    lab.kill_node(0)
    ended = run.end()
    assert ended.code == 1
    assert golden(1) in ended.out
    assert lab.leftovers() == []


def test_a_script_that_kills_its_agent_leaves_no_process_and_the_next_run_has_all_nodes(local_lab):
    lab = local_lab
    assert lab("up", "--nodes", "2").code == 0

    ended = lab("run", lab.script(KILLS_ITS_AGENT))

    assert ended.code == 1
    assert golden(1) in ended.out
    pids = re.findall(r"pid (\d+)", ended.out)
    assert len(pids) == 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "what the script started to end", 10.0)
    assert [node["state"] for node in lab.status()["nodes"]] == ["running", "dead"]
    again = lab("run", lab.script("import os\nprint('ran', os.environ['WORLD_SIZE'])", "next.py"))
    assert again.code == 0, again.said
    assert golden(2, lab.name) in again.err
    assert "ran 2" in again.out
