"""A host of a swarm loses its power: who is told so, what is left, and what becomes of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.conftest import ROOT
from tests.crash.conftest import wait_until
from tests.golden import golden

NAME = "t-power"
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(8))
    print("again", flush=True)
"""
RUN, DATA = Path("/run/lab-hosts-power"), Path("/var/lib/lab-hosts-power")


@pytest.fixture
def environment(tmp_path: Path, docker_engine: docker.DockerClient) -> Iterator[dict[str, str]]:
    """What commands are told to find a swarm of two hosts, which nobody else uses."""
    settings = tmp_path / "swarm.json"
    images = docker_engine.info()["DockerRootDir"]
    told = {"LAB_HOSTS_RUN": RUN, "LAB_HOSTS_DATA": DATA, "LAB_HOSTS_IMAGES": images, "LAB_SWARM": settings}
    environment = {**os.environ, **{name: str(path) for name, path in told.items()}, "XDG_STATE_HOME": str(tmp_path)}
    try:
        hosts(environment, "up", "2")
        said = json.loads(settings.read_text())
        settings.write_text(json.dumps({**said, "shared": None}))  # then each host has a volume of its own
        yield environment
    finally:
        hosts(environment, "down", "--images")


def hosts(environment: dict[str, str], *words: str) -> None:
    subprocess.run([ROOT / "dev" / "hosts", *words], env=environment, check=True, timeout=200, capture_output=True)


def lab(environment: dict[str, str], *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.cli.main", *words]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def kept_by(host: str, *words: str) -> list[str]:
    """What the engine of a host has of the cluster."""
    command = ["docker", "--host", f"unix://{RUN}/{host}/docker.sock", *words, "--quiet"]
    asked = ["--filter", f"label=lab.cluster.name={NAME}"]
    return subprocess.run([*command, *asked], capture_output=True, text=True, check=True, timeout=60).stdout.split()


@pytest.mark.swarm
def test_a_host_without_power_is_named_with_its_node_and_what_it_keeps_goes_when_it_is_back(
    environment: dict[str, str], tmp_path: Path
):
    (tmp_path / "main.py").write_text(SCRIPT)
    up = lab(environment, "up", "--engine", "swarm", "--nodes", "2", "--name", NAME, folder=tmp_path)
    assert up.returncode == 0, up.stderr
    nodes = json.loads(lab(environment, "status", "--name", NAME, "--json", folder=tmp_path).stdout)[0]["nodes"]
    assert {node["host"] for node in nodes} == {"host0", "host1"}
    lost = next(node["name"] for node in nodes if node["host"] == "host1")

    command = [sys.executable, "-m", "lab.cli.main", "run", "main.py", "--name", NAME]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any("again" in line for line in run.stdout)
        hosts(environment, "off", "host1")
        said = run.stdout.read()
    assert run.returncode == 1
    assert golden(1, lost) in said

    down = lab(environment, "down", "--name", NAME, folder=tmp_path)
    assert golden(2) in down.stdout
    for words in (("ps", "--all"), ("volume", "ls"), ("network", "ls")):
        wait_until(lambda words=words: kept_by("host0", *words) == [], f"{words} to be empty", 30.0)  # type: ignore[misc]

    hosts(environment, "on", "host1")
    assert kept_by("host1", "volume", "ls")
    status = lab(environment, "status", "--engine", "swarm", folder=tmp_path)
    assert golden(3, NAME) in status.stderr
    wait_until(lambda: kept_by("host1", "ps", "--all") == [] == kept_by("host1", "volume", "ls"), "all to go", 60.0)
