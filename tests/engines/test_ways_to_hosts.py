"""The engines of a swarm's hosts, reached over a network: behind TLS, said by variables or by contexts of docker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import certifi
import pytest

HOSTS = Path(os.environ.get("LAB_HOSTS_RUN", "/run/lab-hosts"))
ADDRESSES = {"host0": "tcp://192.168.213.1:2376", "host1": "tcp://192.168.213.2:2376"}
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("world of", int(total))
"""


def contexts(folder: Path) -> dict[str, str]:
    """Make a context for each host, and choose that of the manager."""
    told = {"DOCKER_CONFIG": str(folder / "docker")}
    proof = ",".join(f"{word}={HOSTS}/tls/{word}.pem" for word in ("ca", "cert", "key"))
    made = [("create", host, "--docker", f"host={address},{proof}") for host, address in ADDRESSES.items()]
    for words in (*made, ("use", "host0")):
        command = ["docker", "context", *words]
        subprocess.run(command, env={**os.environ, **told}, check=True, capture_output=True, timeout=60)
    return told


def lab(environment: dict[str, str], folder: Path, *words: str, given: bytes = b"") -> bytes:
    command = ["ip", "netns", "exec", HOSTS.name, sys.executable, "-m", "lab.cli.main", *words]
    done = subprocess.run(command, env=environment, cwd=folder, input=given, capture_output=True, timeout=150)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.swarm
@pytest.mark.parametrize("way", ["variables", "contexts"])
def test_hosts_behind_tls_are_reached_and_nothing_said_there_is_lost(way: str, tmp_path: Path) -> None:
    settings = {"manager": ADDRESSES["host0"]} if way == "variables" else {}
    told = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": f"{HOSTS}/tls"} if settings else contexts(tmp_path)
    (tmp_path / "swarm.json").write_text(json.dumps(settings))
    (tmp_path / "main.py").write_text(SCRIPT)
    environment = {**os.environ, **told, "LAB_SWARM": str(tmp_path / "swarm.json")}
    environment["LAB_SLURM_HOME"] = str(tmp_path / "slurm")  # that of others is out of reach there
    environment["REQUESTS_CA_BUNDLE"] = certifi.where()  # which say who may be trusted in the web, and not here
    name = f"lab-test-{way}"
    try:
        lab(environment, tmp_path, "up", "--engine", "swarm", "--nodes", "2", "--hosts", "host0,host1", "--name", name)
        assert b"world of 2" in lab(environment, tmp_path, "run", "main.py", "--name", name)
        much = os.urandom(3_000_000)
        assert lab(environment, tmp_path, "exec", "--name", name, "node1", "--", "cat", given=much) == much
    finally:
        lab(environment, tmp_path, "down", "--name", name)
