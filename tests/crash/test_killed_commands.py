"""The command line killed with SIGKILL at moments spread over its life: the next command finds and removes the rest."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from lab.features.zygote.nodes import SWITCH
from lab.node.processes import is_stopped
from tests.crash.conftest import HOLD, Command, Lab, first, read, wait_until
from tests.golden import golden

pytestmark = [pytest.mark.xdist_group("tests/crash/test_killed_commands.py"), pytest.mark.half]
QUICK = "import os\nprint('ran on', os.environ['RANK'], flush=True)\n"
MOMENTS = range(10)
_took_s: dict[tuple[str, str], float] = {}


def lifetime_s(lab: Lab, *words: str) -> float:
    """Seconds that a command takes when nobody kills it, measured once for each engine."""
    key = (lab.engine, words[0])
    if key not in _took_s:
        began = time.monotonic()
        assert lab(*words).code == 0
        _took_s[key] = time.monotonic() - began
        lab("down")
    return _took_s[key]


def kill_at(lab: Lab, fraction: float, *words: str) -> None:
    """Start a command and kill it when this part of its life has passed."""
    whole = lifetime_s(lab, *words)
    command = lab.start(*words)
    command.lives_on_for(fraction * whole)
    command.send(signal.SIGKILL)
    command.end()


@pytest.mark.local_first
@pytest.mark.parametrize("moment", first([6], *sorted({*MOMENTS} - {6})))
def test_nothing_is_left_when_a_run_with_a_cluster_of_its_own_is_killed(lab, moment):
    kill_at(lab, (moment + 0.5) / len(MOMENTS), "run", lab.script(QUICK), "--nodes", "2")
    assert lab("down").code == 0
    assert lab.leftovers() == []


@pytest.mark.local_first
@pytest.mark.parametrize("moment", first([], 3, 7))
def test_the_next_run_cleans_up_after_a_killed_one(lab, moment):
    script = lab.script(QUICK)
    kill_at(lab, moment / len(MOMENTS), "run", script, "--nodes", "2")
    left = [what for what in lab.leftovers() if not what.startswith("process")]  # which may be about to end by itself
    ended = lab("run", script, "--nodes", "2")
    assert ended.code == 0, ended.said
    assert not left or golden(1) in ended.err, (left, ended.err)
    assert lab.leftovers() == []


@pytest.mark.local_first
@pytest.mark.parametrize("moment", first([5], 2, 8))
def test_nothing_is_left_when_up_is_killed(lab, moment):
    kill_at(lab, moment / len(MOMENTS), "up", "--nodes", "2")
    assert lab("down").code == 0
    assert lab.leftovers() == []


@pytest.mark.local_first
@pytest.mark.parametrize("moment", first([5], 3, 7))
def test_up_after_a_killed_up_makes_a_whole_cluster(lab, moment):
    kill_at(lab, moment / len(MOMENTS), "up", "--nodes", "2")
    ended = lab("up", "--nodes", "2")
    assert ended.code == 0, ended.said
    assert lab.status()["state"] == "ready"
    assert lab("run", lab.script(QUICK)).code == 0


@pytest.mark.long
@pytest.mark.parametrize("moment", [3, 5, 7, 9])
@pytest.mark.parametrize("then", ["up", "down"])
def test_a_killed_up_of_a_cluster_with_a_zygote_is_made_good_or_removed(docker_lab, moment, then):
    lab = docker_lab
    lab.env[SWITCH] = "always"
    kill_at(lab, moment / len(MOMENTS), "up", "--nodes", "2")
    if then == "up":
        ended = lab("up", "--nodes", "2", timeout_s=120)
        assert ended.code == 0, ended.said
        assert lab.status()["state"] == "ready"
        assert lab("run", lab.script(QUICK)).code == 0
    assert lab("down").code == 0
    assert lab.leftovers() == []


KILLED_WHILE_SENDING = """
import os, signal, sys
from lab.engine.docker.connection import DockerChannel
send = DockerChannel.send
def killed(channel, data):
    send(channel, data[:int(len(data) * {part})])
    if channel.node.node_rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
DockerChannel.send = killed
from lab.cli.main import main
main(sys.argv[1:])
"""


def kill_while_sending(lab: Lab, part: float) -> None:
    """Have `lab up` killed when this part of the agent is on its way to a container that runs."""
    words = ["up", "--nodes", "1", "--engine", lab.engine, "--name", lab.name]
    program = [sys.executable, "-c", KILLED_WHILE_SENDING.format(part=part)]
    assert Command([*program, *words], lab.folder, lab.env, lab.notes).end().code == -signal.SIGKILL
    assert lab.status()["state"] == "ready"


@pytest.mark.long
@pytest.mark.parametrize("part", [0.5, 0])
def test_up_after_one_killed_while_it_sent_the_agents_makes_a_whole_cluster(docker_lab, part):
    """The containers run by then, so that only their silence tells that the cluster is not whole."""
    lab = docker_lab
    kill_while_sending(lab, part)
    ended = lab("up", timeout_s=120)
    assert ended.code == 0, ended.said
    assert golden(1) in ended.err
    assert lab("run", lab.script(QUICK)).code == 0


@pytest.mark.long
def test_a_run_after_an_up_killed_while_it_sent_the_agents_removes_the_remains(docker_lab):
    lab = docker_lab
    kill_while_sending(lab, 0)
    ended = lab("run", lab.script(QUICK))
    assert ended.code == 0, ended.said
    assert golden(1) in ended.err
    assert lab.leftovers() == []


@pytest.mark.local_first
@pytest.mark.parametrize("moment", first([5], 3, 7))
def test_nothing_is_left_when_down_is_killed_and_called_again(lab, moment):
    assert lab("up", "--nodes", "2").code == 0
    down = lab.start("down")
    down.lives_on_for(moment / len(MOMENTS) * 0.8)
    down.send(signal.SIGKILL)
    down.end()
    assert lab("down").code == 0
    assert lab.leftovers() == []


@pytest.mark.local_first
@pytest.mark.parametrize("verb", [pytest.param("stop", marks=pytest.mark.long), "start"])
@pytest.mark.parametrize("moment", first([4], 2, 6, 8))
def test_a_stop_or_start_of_a_node_that_was_killed_disturbs_neither_the_next_run_nor_down(lab, verb, moment):
    assert lab("up", "--nodes", "2").code == 0
    if verb == "start":
        assert lab("stop", "node1").code == 0
    command = lab.start(verb, "node1")
    command.lives_on_for(moment / len(MOMENTS))
    command.send(signal.SIGKILL)
    command.end()
    ended = lab("run", lab.script(QUICK))
    stopped = "node1 of cluster" in ended.err and "is stopped" in ended.err
    assert ended.code == (2 if stopped else 0), ended.said
    assert lab("up").code == 0
    assert lab("run", lab.script(QUICK)).code == 0
    assert lab("down").code == 0
    assert lab.leftovers() == []


@pytest.mark.local_first
@pytest.mark.parametrize("moments", first([2], 10))
def test_a_cluster_survives_runs_killed_at_any_moment(shared_lab, moments):
    lab = shared_lab
    script = lab.script(QUICK)
    assert lab("up", "--nodes", "2").code == 0
    began = time.monotonic()
    assert lab("run", script).code == 0
    whole = time.monotonic() - began
    for moment in range(moments):
        run = lab.start("run", script)
        run.lives_on_for((moment + 0.5) / moments * whole)
        run.send(signal.SIGKILL)
        run.end()
        again = lab("run", script)
        assert again.code == 0, (moment, again.said)
        assert again.out.count("ran on") == 2, (moment, again.said)
        assert lab.status()["state"] == "ready", moment


@pytest.mark.local_first
def test_the_next_run_takes_over_from_one_killed_in_mid_run(shared_lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(HOLD, "hold.py"))
    run.wait_for("holding", 2)
    assert len(lab.workers()) == 2
    run.send(signal.SIGKILL)
    run.end()
    ended = lab("run", lab.script(QUICK))
    assert ended.code == 0, ended.said
    assert "holding" not in ended.said
    assert not lab.workers()
    shown = lab("runs", "--json").json()
    assert [run["verdict"] for run in shown] == ["error", "passed"]
    assert golden(1) in shown[0]["reason"]


@pytest.mark.local_first
def test_down_says_what_it_removed_after_a_killed_run(lab):
    run = lab.start("run", lab.script(HOLD, "hold.py"), "--nodes", "2")
    run.wait_for("holding", 2)
    run.send(signal.SIGKILL)
    run.end()
    status = lab("status")
    assert "made for run" in status.out
    ended = lab("down")
    assert f"removed {lab.name}: 2 nodes" in ended.out
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_whoever_makes_a_cluster_next_removes_the_one_of_a_dead_run(lab):
    run = lab.start("run", lab.script(HOLD, "hold.py"), "--nodes", "1")
    run.wait_for("holding")
    run.send(signal.SIGKILL)
    run.end()
    ended = lab("run", lab.script(QUICK), "--nodes", "1", "--name", "two")
    assert ended.code == 0, ended.said
    assert golden(1, lab.name) in ended.err
    assert lab.leftovers() == []


WHEN_IT_HAS_A_NETWORK = """
import os, signal, sys
from lab.engine.docker import create
make = create._make_node
def halted(*words):
    os.kill(os.getpid(), signal.{signal})
    return make(*words)
create._make_node = halted
from lab.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def up_with(lab: Lab, sent: str) -> Command:
    """Start `lab up`, which gets a signal when it has made network and volumes, and no container yet."""
    words = ["up", "--nodes", "1", "--engine", lab.engine, "--name", lab.name]
    program = [sys.executable, "-c", WHEN_IT_HAS_A_NETWORK.format(signal=sent)]
    return Command([*program, *words], lab.folder, lab.env, lab.notes)


def test_whoever_makes_a_cluster_next_removes_network_and_volume_of_a_killed_up(docker_lab: Lab):
    lab = docker_lab
    assert up_with(lab, "SIGKILL").end().code == -signal.SIGKILL
    assert [what.split()[0] for what in lab.leftovers()] == ["network", "volume", "volume"]
    ended = lab("run", lab.script(QUICK), "--nodes", "1", "--name", "two")
    assert ended.code == 0, ended.said
    assert golden(1, lab.name) in ended.err
    assert lab.leftovers() == []


@pytest.mark.long
def test_network_and_volume_of_an_up_that_is_still_at_it_are_left_alone(docker_lab: Lab):
    lab = docker_lab
    up = up_with(lab, "SIGSTOP")
    wait_until(lambda: is_stopped(up.process.pid), "the command to have made its network")
    ended = lab("run", lab.script(QUICK), "--nodes", "1", "--name", "two")
    assert ended.code == 0, ended.said
    assert "removed" not in ended.err
    up.send(signal.SIGCONT)
    assert up.end().code == 0
    assert lab.status()["state"] == "ready"


def test_a_local_worker_that_hid_from_its_label_is_removed_too(local_lab):
    """A script may start a process with an empty environment in a session of its own."""
    lab = local_lab
    hide = """
import os, subprocess, time
child = subprocess.Popen(["/bin/sleep", "599"], env={}, start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(600)
"""
    assert lab("up", "--nodes", "1").code == 0
    run = lab.start("run", lab.script(hide))
    run.wait_for("child")
    child = int(run.said.split("child ")[1].split()[0])
    assert lab("down").code == 0
    run.end()
    wait_until(lambda: b"599" not in read(f"/proc/{child}/cmdline"), "the hidden process to end")


def test_what_a_killed_doctor_left_disturbs_nobody_and_is_removed(docker_lab: Lab, node_image: str):
    """Its probe is a container of this owner, but no node of any cluster."""
    labels = [f"--label=lab.cluster.owner={docker_lab.owner}", "--label=lab.cluster.name=doctor"]
    subprocess.run(["docker", "create", *labels, node_image], check=True, capture_output=True, timeout=60)
    assert docker_lab("status", "--json").json() == []
    assert docker_lab("doctor").code in (0, 1)
    assert "removed doctor" in docker_lab("down", "--all").out
    assert docker_lab.leftovers() == []
