"""Commands at the same time: on one cluster one after the other, on two clusters in parallel."""

from __future__ import annotations

import signal

import pytest

from tests.crash.conftest import HOLD, Lab
from tests.golden import golden

pytestmark = pytest.mark.half

WHO = """
import os, sys
for i in range(200):
    print(sys.argv[1], os.environ["RANK"], i, flush=True)
"""


@pytest.mark.local_first
def test_a_second_run_is_refused_and_told_who_has_the_cluster(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    first = lab.start("run", lab.script(HOLD, "hold.py"))
    first.wait_for("holding", 2)
    second = lab("run", lab.script(WHO, "who.py"), "--", "second")
    assert second.code == 2
    assert golden(1, lab.name, first.process.pid) in second.err
    assert "--wait" in second.err
    assert "| second" not in second.out
    assert lab.status()["busy"]["purpose"] == golden(2)
    assert golden(3, first.process.pid) in lab("status").out
    assert first.process.poll() is None
    first.send(signal.SIGINT)
    assert first.end().code == 130


@pytest.mark.local_first
def test_a_second_run_that_waits_runs_after_the_first(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    first = lab.start("run", lab.script(HOLD, "hold.py"))
    first.wait_for("holding", 2)
    second = lab.start("run", lab.script(WHO, "who.py"), "--wait", "60s", "--", "second")
    assert second.lives_on_for(1.0)
    first.send(signal.SIGINT)
    assert first.end().code == 130
    ended = second.end()
    assert ended.code == 0, ended.said
    assert ended.out.count("| second") == 400


@pytest.mark.local_first
def test_a_wait_that_is_too_short_ends_with_who_was_waited_for(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    first = lab.start("run", lab.script(HOLD, "hold.py"))
    first.wait_for("holding", 2)
    second = lab("run", lab.script(WHO, "who.py"), "--wait", "1s")
    assert second.code == 2
    assert golden(1) in second.err
    assert "(waited 1 s)" in second.err
    first.send(signal.SIGINT)
    first.end()


@pytest.mark.local_first
def test_many_waiting_runs_all_run_and_are_not_mixed(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    script = lab.script(WHO, "who.py")
    runs = [lab.start("run", script, "--wait", "60s", "--", f"run{i}") for i in range(4)]
    for i, run in enumerate(runs):
        ended = run.end()
        assert ended.code == 0, ended.said
        assert ended.out.count(f"| run{i} ") == 400
        assert ended.out.count("| run") == 400
    assert len(lab("runs", "--json").json()) == 4


@pytest.mark.local_first
def test_two_clusters_run_independently(shared_lab: Lab):
    lab = shared_lab
    names = [lab.name, f"{lab.name}b"]
    script = lab.script(WHO, "who.py")
    commands = [lab.start("up", "--nodes", "2", "--name", name) for name in names]
    assert [command.end().code for command in commands] == [0, 0]
    hold = lab.start("run", lab.script(HOLD, "hold.py"), "--name", names[0])
    hold.wait_for("holding", 2)
    for _ in range(2):
        ended = lab("run", script, "--name", names[1], "--", "free")
        assert ended.code == 0, ended.said
        assert ended.out.count("| free") == 400
    assert lab("down", "--name", names[1]).code == 0
    assert hold.process.poll() is None
    assert lab.status(names[0])["state"] == "ready"
    hold.send(signal.SIGINT)
    assert hold.end().code == 130


@pytest.mark.local_first
def test_down_in_mid_run_ends_the_run_with_a_clear_word_and_leaves_nothing(lab: Lab):
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(HOLD, "hold.py"))
    run.wait_for("holding", 2)
    down = lab("down")
    assert down.code == 0
    assert golden(1) in down.err
    ended = run.end()
    assert ended.code == 1
    assert "removed during the run" in ended.out, ended.said
    assert "Traceback" not in ended.said
    assert lab.leftovers() == []


def test_down_while_up_works_leaves_nothing(lab: Lab):
    up = lab.start("up", "--nodes", "2")
    up.wait_for("importing torch")
    assert lab("down").code == 0
    ended = up.end()
    assert ended.code == 1, ended.said
    assert "Traceback" not in ended.said
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_two_ups_at_once_make_one_cluster(lab: Lab):
    ups = [lab.start("up", "--nodes", "2", "--wait", "60s") for _ in range(2)]
    ended = [up.end() for up in ups]
    assert [end.code for end in ended] == [0, 0], [end.said for end in ended]
    assert sum(golden(1) in end.out for end in ended) == 1
    assert len(lab("status", "--json").json()) == 1


@pytest.mark.local_first
def test_a_run_that_goes_on_is_never_pruned_and_one_whose_command_was_killed_is(shared_lab: Lab):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(HOLD, "hold.py"))
    run.wait_for("holding", 2)
    pruned = lab("runs", "--prune", "--keep", "0", "--json").json()
    assert (pruned["removed"], len(pruned["in_progress"])) == ([], 1)
    assert "no result yet" in lab("show").out
    run.send(signal.SIGKILL)
    run.end()
    pruned = lab("runs", "--prune", "--keep", "0", "--json").json()
    assert (len(pruned["removed"]), pruned["in_progress"]) == (1, [])
    assert lab("runs", "--json").json() == []
    lab("down")
