"""What the tests of a stopped `dev/test` left is removed, and nothing of others."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from lab.engine.ownership import OWNER

PROGRAM = Path(__file__).parents[2] / "dev" / "remove_leftovers.py"
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process of a user."""
    started: list[subprocess.Popen[bytes]] = []

    def start(user: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"], env={**os.environ, "LOGNAME": user}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def make_network(docker_engine: docker.DockerClient) -> Iterator[Callable[[str], Any]]:
    """Makes a network of an owner."""
    made: list[Any] = []

    def make(owner: str) -> Any:
        made.append(docker_engine.networks.create(f"lab-test-{uuid.uuid4().hex[:8]}", labels={OWNER: owner}))
        return made[-1]

    yield make
    for network in docker_engine.networks.list(ids=[one.id for one in made]):
        network.remove()


def remove(name: str, folder: Path) -> str:
    words = [sys.executable, str(PROGRAM), name, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout


def test_processes_with_the_name_of_the_tests_are_ended(name: str, start: Start, tmp_path: Path) -> None:
    mine, other = [start(name), start(f"{name}-1")], start(f"{name}1")

    said = remove(name, tmp_path)

    assert [process.wait(10) for process in mine] == [-9, -9]
    assert other.poll() is None
    assert len(said.splitlines()) == 2


def test_resources_of_an_owner_with_the_name_of_the_tests_are_removed(
    name: str, make_network: Callable[[str], Any], docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    mine, other = [make_network(f"{name}@here"), make_network(f"{name}-1@here")], make_network(f"{name}1@here")

    said = remove(name, tmp_path)

    assert [network.id for network in docker_engine.networks.list(ids=[one.id for one in (*mine, other)])] == [other.id]
    assert said.count("network lab-test-") == 2
