"""The command line killed while faults are in force: whoever heals, or removes the cluster, leaves nothing of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.node.processes import is_stopped
from tests.crash.conftest import Lab, container_pids, docker_leftovers, first

QUICK = "import os\nopen('made', 'w').write('x')\nprint('ran on', os.environ['RANK'], flush=True)\n"
WAITS = "import os, time\nprint('waits', os.environ['RANK'], flush=True)\ntime.sleep(600)\n"
SEEDS = range(50)
"""Of the whole test: each is a kill, every other one on Docker."""
CHOSEN = (0.5, 0.2, 0.8)
"""Parts of a command's life after which it is killed; the first in the short run too."""
FAULTS = {
    "local": ["kill node1", "pause node1", "restart node1", "stop node1"],
    "docker": [
        *("kill node1", "pause node1", "restart node1", "power_off node1", "disconnect node1"),
        *("cpu {node: node1, cores: 0.5}", "memory {node: node1, limit: 1GiB}", "partition node0 / node1"),
        *("rate node1 10mbit", "loss node1 5%", "dns node1", "reset node1"),
    ],
}
"""What `lab fault` does to a cluster of two nodes."""
OF_A_RUN = {
    "local": ["disk_full: node1", "signal: {rank: 1, name: SIGSTOP}", "pause: node1", "kill: node1"],
    "docker": [
        *("rate: node1 10mbit", "partition: node0 / node1", "disconnect: node1", "cpu: {node: node1, cores: 0.5}"),
        *("disk_full: node1", "signal: {rank: 1, name: SIGSTOP}", "pause: node1", "kill: node1"),
    ],
}
"""What is in force, one after the other, in a run of which no rank ends by itself."""
LIVES_S = {"run": 2.0, "fault": 0.6, "heal": 0.6}
"""How long these commands live, roughly: a run goes on."""
CORES = os.cpu_count() or 1
TABLES = """
import socket, struct
kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
kernel.send(struct.pack("=IHHII", 20, 10 << 8 | 1, 0x301, 1, 0) + bytes(4))
print(kernel.recv(65536))
"""
"""Prints the names of all tables of packet filters, among other bytes."""


def scenario(lab: Lab) -> str:
    """A run with several kinds of faults, of which no rank ever ends."""
    path = Path(lab.script(WAITS, "waits.py")).with_suffix(".yaml")
    faults = [f"  - {one}\n    when: {{at: {100 * number}ms}}\n" for number, one in enumerate(OF_A_RUN[lab.engine])]
    path.write_text("script: waits.py\nnodes: 2\nfaults:\n" + "".join(faults))
    return str(path)


def kill(lab: Lab, what: str, fault: str, part: float) -> None:
    """Kill a command when a part of its life has passed."""
    if what == "heal":
        ended = lab("fault", *fault.split(maxsplit=1))
        assert ended.code == 0, ended.said
    words = {"run": ["run", scenario(lab)], "fault": ["fault", *fault.split(maxsplit=1)], "heal": ["fault", "heal"]}[
        what
    ]
    command = lab.start(*words)
    command.lives_on_for(part * LIVES_S[what])
    command.send(signal.SIGKILL)
    command.end()


def broken(lab: Lab) -> list[str]:
    """What of faults is left, wherever they leave anything."""
    state = Path(lab.env["XDG_STATE_HOME"], "lab")
    found = [f"journal {path.name}: {path.read_text()}" for path in state.rglob("*.faults")]
    status = lab.status()
    found += [
        f"{node['name']} is {node['state']}" for node in (status or {}).get("nodes", ()) if node["state"] != "running"
    ]
    if lab.engine == "local":
        return [*found, *(f"process {pid} is stopped" for pid in lab.mine() if is_stopped(pid))]
    names = [what.split()[1] for what in docker_leftovers(lab.owner) if what.startswith("container")]
    told = [inspected(name) for name in names]
    limits = {(one["HostConfig"]["NanoCpus"] or CORES * 10**9, one["HostConfig"]["Memory"]) for one in told}
    found += [f"nodes have different limits: {limits}"] if len(limits) > 1 else []
    return [*found, *(wrong for one in told for wrong in broken_container(one))]


def inspected(name: str) -> dict[str, Any]:
    said = subprocess.run(["docker", "inspect", name], capture_output=True, text=True, check=True, timeout=60)
    return dict(json.loads(said.stdout)[0])


def broken_container(told: dict[str, Any]) -> Iterator[str]:
    name = told["Name"].removeprefix("/")
    if told["State"]["Paused"] or not told["NetworkSettings"]["Networks"]:
        yield f"{name} is paused, or has no network"
    pids = container_pids(name)
    yield from (f"process {pid} of {name} is stopped" for pid in pids if is_stopped(pid))
    for words in (["tc", "qdisc"], [sys.executable, "-c", TABLES]) if pids else ():
        inside = ["nsenter", "-t", str(pids[0]), "-n", *words]
        said = subprocess.run(inside, capture_output=True, text=True, check=True, timeout=60).stdout
        if any(word in said for word in ("htb", "netem", "tbf", "lab\\x00")):
            yield f"{name}: {said}"


def healed(lab: Lab) -> list[str]:
    """What is left when somebody has healed the cluster, which then has to be as it was."""
    heals = [lab("fault", "heal") for _ in range(2)]
    left = [f"heal: {ended.said}" for ended in heals if ended.code != 0]
    if "no faults" not in heals[1].out:
        left.append(f"a second heal says: {heals[1].said}")
    left += broken(lab)
    again = lab("run", lab.script(QUICK))
    if again.code or again.out.count("ran on") != 2:
        left.append(f"a run afterwards: {again.said}")
    return left


def removed(lab: Lab) -> list[str]:
    """What is left when somebody has removed the cluster."""
    down = lab("down")
    left = [] if down.code == 0 else [f"down: {down.said}"]
    return [*left, *broken(lab), *lab.leftovers()]


@pytest.mark.local_first
@pytest.mark.parametrize("part", first(CHOSEN[:1], *CHOSEN[1:]))
def test_nothing_of_a_fault_is_left_after_a_killed_command(lab: Lab, part: float):
    assert lab("up", "--nodes", "2").code == 0
    for what in LIVES_S:
        kill(lab, what, "pause node1", part)
        assert healed(lab) == [], what
    kill(lab, "run", "", part)
    assert removed(lab) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_of_a_fault_is_left_after_fifty_killed_commands(lab: Lab):
    left = []
    for seed in SEEDS[lab.engine == "docker" :: 2]:
        draw = random.Random(seed)
        what, fault, part = draw.choice([*LIVES_S]), draw.choice(FAULTS[lab.engine]), draw.random()
        if lab.status() is None:
            assert lab("up", "--nodes", "2").code == 0
        kill(lab, what, fault, part)
        found = removed(lab) if draw.random() < 0.3 else healed(lab)
        left += [f"seed {seed}, {what} {fault} after {part:.2f}: {each}" for each in found]
    assert left == []
