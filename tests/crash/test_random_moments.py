"""Every command that makes, uses or removes a cluster, killed or interrupted at random moments of its life."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.crash.conftest import Command, Lab, wait_until

QUICK = "import os\nprint('ran on', os.environ['RANK'], flush=True)\n"
KILLS = 8
INTERRUPTS = 13
"""On each engine, of each command."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("what", ["up", "run", "run on a cluster", "down"]),
]


def stopped(lab: Lab, what: str, tries: int, stop: Callable[[Command], object]) -> Iterator[tuple[float, int]]:
    """Stop a command at one random moment after the other; gives the moment, and the exit code."""
    words = {"up": ["up", "--nodes", "2"], "down": ["down"]}.get(what, ["run", lab.script(QUICK)])
    if what == "run":
        words += ["--nodes", "2"]
    whole_s = None
    while tries:
        if what in ("run on a cluster", "down"):
            assert lab("up", "--nodes", "2").code == 0
        if whole_s is None:
            began = time.monotonic()
            assert lab(*words).code == 0
            whole_s = time.monotonic() - began
            assert lab("down").code == 0
            continue
        moment_s = random.uniform(0, whole_s)
        command = lab.start(*words)
        command.lives_on_for(moment_s)
        stop(command)
        yield moment_s, command.end().code
        tries -= 1


def told(lab: Lab, what: str, tries: list[tuple[float, int, list[str]]]) -> list[str]:
    """What was left, with the moment; all tries are printed."""
    left = [f"{moment_s:.3f} s: {each}" for moment_s, _, found in tries for each in found]
    moments = " ".join(f"{moment_s:.2f}={code}" for moment_s, code, _ in sorted(tries))
    print(f"{lab.engine}, {what}: {len(tries)} tries, {len(left)} left (moment in s = exit code: {moments})")
    return left


def test_nothing_is_left_of_a_killed_command_that_down_does_not_remove(lab: Lab, what: str):
    tries = []
    for moment_s, code in stopped(lab, what, KILLS, lambda command: command.send(signal.SIGKILL)):
        assert lab("down").code == 0
        tries.append((moment_s, code, lab.leftovers() + lab.locks_of_the_dead()))
    assert told(lab, what, tries) == []


def interrupt(command: Command) -> None:
    """Ctrl-C once, twice or three times, quickly."""
    for _ in range(random.randint(1, 3)):
        command.send(signal.SIGINT)
        command.lives_on_for(random.uniform(0, 0.1))


def test_nothing_is_left_of_an_interrupted_command_but_a_cluster_that_stays(lab: Lab, what: str):
    tries = []
    for moment_s, code in stopped(lab, what, INTERRUPTS, interrupt):
        left = lab.locks_of_the_dead()
        if what == "run on a cluster" or (what != "run" and lab.status() is not None):
            wait_until(lambda: not lab.workers(), "the workers to be gone")
            again = lab("run", lab.script(QUICK))
            if again.code or again.out.count("ran on") != 2 or "removed" in again.err:
                left.append(f"a cluster that is not as it was: {again.said}")
            assert lab("down").code == 0
        tries.append((moment_s, code, left + lab.leftovers()))
    assert told(lab, what, tries) == []
