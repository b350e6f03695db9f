"""Making a local cluster: a folder, and one process that imports torch and forks an agent a node."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab import __version__
from lab.engine.held import greet, last_line
from lab.engine.interrupts import may_outlive
from lab.engine.local.state import (
    CONTROL,
    DATA,
    DESCRIPTION,
    LIFE,
    MARK,
    PACKAGES_VARIABLE,
    count_nodes,
    mark,
    network_name,
    network_number,
    networks_for,
    read_cluster,
)
from lab.engine.ownership import new_folder
from lab.engine.payload import write_node_files
from lab.engine.protocol import Announce, Request, refuse_for_one_host
from lab.errors import ClusterError, ClusterUnfit
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.words import plural

_READY_TIMEOUT_S = 120.0
_FIRST, _NETWORKS = 256, 254 * 256
"""Of the networks: 127.1.0 is the first, 127.254.255 the last."""


def create(home: Path, cluster: str, requests: Sequence[Request], announce: Announce) -> ClusterInfo:
    """Make the folder and the processes, and wait until every agent answers.

    Raises:
        ClusterError: a node did not start; what was made is still there.
    """
    files, process = (request.body for request in requests)
    folder = new_folder(home, cluster, "LAB_LOCAL_HOME")
    for name in ("shared", DATA):
        (folder / name).mkdir()
    write_node_files(folder / "site")
    (folder / DESCRIPTION).write_text(json.dumps(files[DESCRIPTION]))
    info = read_cluster(folder)
    assert info is not None
    for name, source in info.shape.data.items():
        (folder / DATA / name).symlink_to(source)
    announce(f"starting {plural(info.shape.nodes, 'local node')}, importing torch once")
    with (folder / "zygote.log").open("wb") as log:
        zygote = subprocess.Popen(
            process["argv"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **process["environment"]},
            cwd="/",
            start_new_session=True,
        )
    may_outlive(zygote)
    assert zygote.stdin is not None
    with suppress(BrokenPipeError), zygote.stdin:  # it may have ended, and has said why
        zygote.stdin.write(json.dumps(process["agents"]).encode())
    await_agents(info.nodes, lambda: zygote.poll() is not None, folder, announce)
    found = read_cluster(folder)
    assert found is not None
    return found


def await_agents(nodes: Sequence[Node], ended: Callable[[], bool], folder: Path, announce: Announce) -> None:
    """Wait until the agent of each node answers, or nobody is left who could start it.

    Raises:
        ClusterError: one did not start.
    """
    lost = greet(nodes, ended, _READY_TIMEOUT_S, lambda: last_line(folder / "zygote.log"), announce)
    if lost is not None:
        raise ClusterError(f"{lost.name} ended while it was starting")


def free_network(home: Path, cluster: str, nodes: int) -> str:
    """Two middle octets of 127.A.B.n that no other cluster of this owner uses, nor as many after them as nodes need.

    Raises:
        ClusterUnfit: there are none.
    """
    taken: set[int] = set()
    for path in home.glob(f"*/{DESCRIPTION}"):
        try:
            first = network_number(str(json.loads(path.read_text())["network"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        taken.update(range(first, first + networks_for(count_nodes(path.parent))))
    seed = hashlib.sha256(mark(home, cluster).encode()).digest()
    begin, wanted = int.from_bytes(seed[:2], "big"), networks_for(nodes)
    for number in ((begin + i) % _NETWORKS for i in range(_NETWORKS)):
        if number + wanted <= _NETWORKS and taken.isdisjoint(range(_FIRST + number, _FIRST + number + wanted)):
            return network_name(_FIRST + number)
    raise ClusterUnfit(
        f"{plural(nodes, 'node')} need {plural(wanted, 'network')} of loopback addresses, one after the other, and of "
        f"the {_NETWORKS:,} that there are {plural(len(taken), 'is', 'are')} taken",
        "ask for fewer nodes, or remove clusters with `lab down --all`",
    )


def requests_for(
    home: Path, cluster: str, shape: Shape, *, network: str, run: str | None, packages: str = ""
) -> list[Request]:
    """The folder with its description, and the process that forks agents.

    `network`: the two middle octets of its addresses. `packages`: the virtual environment that workers use, if any.

    Raises:
        ClusterUnfit: processes of this machine cannot be that.
    """
    _refuse_impossible(shape)
    folder = home / cluster
    description = {"shape": shape.to_json(), "network": network, "run": run, "version": __version__}
    site = str(folder / "site")
    start = f"import sys; sys.path.append({site!r}); from labnode.node.local_nodes import main; main()"
    return [
        Request(what=f"folder {folder}", body={DESCRIPTION: description}),
        Request(
            what=f"process of {shape.nodes} agents",
            body={
                "argv": [
                    sys.executable,
                    "-c",
                    start,
                    str(folder / LIFE),
                    str(folder / CONTROL),
                ],
                "agents": _agents(folder, shape, packages),
                "environment": {
                    "GLOO_SOCKET_IFNAME": "lo",
                    **({PACKAGES_VARIABLE: packages} if packages else {}),
                    **shape.env,
                    MARK: mark(home, cluster),
                },
            },
        ),
    ]


def programs_first(packages: str) -> dict[str, str]:
    """The environment in which the programs of a virtual environment are found."""
    return {"VIRTUAL_ENV": packages, "PATH": f"{packages}/bin:{os.environ.get('PATH', os.defpath)}"}


def _agents(folder: Path, shape: Shape, packages: str) -> list[dict[str, Any]]:
    return [
        {
            "node": node,
            "root": str(folder / node),
            "container": False,
            "import_root": str(folder / "site"),
            "socket": str(folder / f"{node}.sock"),
            "memory_bytes": shape.memory_bytes,
            "disk_bytes": shape.disk_bytes,
            "shared": str(folder / "shared"),
            "packages": packages,
        }
        for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
    ]


def _refuse_impossible(shape: Shape) -> None:
    refuse_for_one_host(shape, "local")
    for volume in shape.volumes:
        if str(volume.source) != volume.target:
            raise ClusterUnfit(
                f"the local engine cannot show {volume.source} at {volume.target}: its nodes see this machine",
                f"use {volume.source} as the target too, or the docker engine",
            )
    if shape.strict:
        raise ClusterUnfit("the local engine cannot be strict: its workers are you", "use --engine docker")
    if shape.image is not None:
        raise ClusterUnfit(
            f"the local engine has no images, so not {shape.image}", "leave the image out, or use --engine docker"
        )
