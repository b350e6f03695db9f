"""The first process of a node whose agent comes from elsewhere, here as any process, with children for agents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.features.zygote import first

TEXT = Path(first.__file__).read_text()
_AGENT = "import os, signal\nif os.fork() == 0:\n os.kill(os.getppid(), signal.SIGUSR1)\n {}\n"
"""A child that says that it is the agent; the signal waits until it is heard."""
_BLOCK = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})\n"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen]]:
    """What was started, and is ended."""
    processes: list[subprocess.Popen] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen], text: str) -> subprocess.Popen:
    started.append(subprocess.Popen([sys.executable, "-ISc", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    return started[-1]


@pytest.mark.parametrize(
    ("end", "code"), [("os._exit(7)", 7), ("os._exit(0)", 0), ("os.kill(os.getpid(), signal.SIGKILL)", 137)]
)
def test_it_says_that_it_waits_and_ends_as_the_agent_does(started: list[subprocess.Popen], end: str, code: int):
    process = start(started, _BLOCK + _AGENT.format(end) + TEXT + "\nsupervise_agent([])")
    assert process.stdout is not None
    assert process.stdout.readline() == first.WAITS
    assert process.wait(30) == code


def test_it_ends_with_no_other_process_and_passes_on_that_it_should_end(started: list[subprocess.Popen]):
    other = "import os\nif os.fork() == 0: os._exit(3)\n"
    waits = "signal.signal(signal.SIGTERM, lambda *_: os._exit(5)); os.write(1, b'agent'); signal.pause()"
    process = start(started, _BLOCK + other + _AGENT.format(waits) + TEXT + "\nsupervise_agent([])")
    assert process.stdout is not None
    said = b""
    while not {b"agent", first.WAITS} <= {part for part in (b"agent", first.WAITS) if part in said}:
        said += os.read(process.stdout.fileno(), 100)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 5


def test_without_a_zygote_it_starts_the_agent_itself_which_reads_what_it_has_left(started: list[subprocess.Popen]):
    plain = ["/bin/sh", "-c", 'read line; echo "$0 $line"; exit 6', "config"]
    process = start(started, f"{TEXT}\nsupervise_agent({plain!r})")
    assert process.communicate(b"for the agent\n", timeout=30)[0] == first.WAITS + b"config for the agent\n"
    assert process.returncode == 6


def test_who_speaks_to_an_agent_that_was_never_sent_hears_that_the_node_ends(started: list[subprocess.Popen]):
    process = start(started, f"{TEXT}\nsupervise_agent(['/bin/false'])")
    assert process.communicate(b"hello\n", timeout=30)[0] == first.WAITS
    assert process.returncode == 1


def test_what_comes_when_the_agent_has_come_is_for_the_agent(started: list[subprocess.Popen]):
    process = start(started, _BLOCK + _AGENT.format("os._exit(len(os.read(0, 100)))") + TEXT + "\nsupervise_agent([])")
    assert process.stdin is not None
    process.stdin.write(b"for the agent")
    process.stdin.flush()
    assert process.wait(30) == len(b"for the agent")
