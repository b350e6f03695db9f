"""A suite that is interrupted or killed: what was found so far is told, and nothing is left."""

from __future__ import annotations

import signal

import pytest

from tests.crash.conftest import HOLD, Lab, wait_until
from tests.golden import golden

FINE = "print('fine', flush=True)\n"


def started(lab: Lab, *words: str):
    """A suite on two clusters, of which each has a rank that runs and does not end; one case has passed."""
    fine = lab.script(FINE, "fine.py").replace(".py", ".yaml")
    with open(fine, "w") as file:
        file.write("script: fine.py\nresources: {memory: 1GiB}\n")
    holds = [lab.script(HOLD, f"hold{number}.py") for number in range(2)]
    for number, hold in enumerate(holds):  # clusters of two kinds, or one would do
        path = f"{hold.removesuffix('.py')}.yaml"
        with open(path, "w") as file:
            file.write(f"script: hold{number}.py\nresources: {{memory: {number + 1}GiB}}\n")
        holds[number] = path
    suite = lab.start("test", fine, *holds, "-j", "2", *words)
    suite.wait_for("passed  fine")
    wait_until(lambda: len(lab.workers()) == 2 or suite.process.poll() is not None, "two ranks")
    assert len(lab.workers()) == 2, suite.said
    return suite


@pytest.mark.local_first
def test_an_interrupt_ends_a_suite_with_what_was_found(lab: Lab):
    suite = started(lab)
    suite.send(signal.SIGINT)
    ended = suite.end()
    assert ended.code == 130, ended.said
    assert "1 passed" in ended.out
    assert golden(1) in ended.out
    assert "Traceback" not in ended.said
    assert lab.leftovers() == []


@pytest.mark.local_first
def test_the_next_command_removes_what_a_suite_left_that_was_killed(lab: Lab):
    suite = started(lab)
    suite.send(signal.SIGKILL)
    suite.end()
    assert lab("test", lab.script(FINE, "fine.py")).code == 0
    assert lab.leftovers() == []
