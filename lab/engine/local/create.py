"""Making a local cluster: a folder, and one process that imports torch and forks an agent a node."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import __version__
from lab.engine.held import DESCRIPTION, read_description
from lab.engine.protocol import Request, refuse_for_one_host
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape
from lab.words import plural

MARK = "LAB_LOCAL_CLUSTER"
"""Environment variable of every process of a cluster."""
_NODES_OF_A_NETWORK = 250
CONTROL, LIFE, LOG = "zygote.sock", "zygote.lock", "zygote.log"
"""Files of a cluster: where the process that holds the nodes is asked for an agent, what it locks, what it wrote."""
_FIRST, _NETWORKS = 256, 254 * 256
"""Of the networks: 127.1.0 is the first, 127.254.255 the last."""


def free_network(home: Path, cluster: str, nodes: int) -> str:
    """Two middle octets of 127.A.B.n that no other cluster of this owner uses, nor as many after them as nodes need.

    Raises:
        ClusterUnfit: there are none.
    """
    import hashlib  # it takes a while, and most commands make no cluster

    used: set[int] = set()
    for data in filter(None, map(read_description, home.glob("*"))):
        first = network_number(data["network"])
        used.update(range(first, first + _count_networks(count_nodes(data))))
    wanted = _count_networks(nodes)
    begin = int.from_bytes(hashlib.sha256(f"{home}/{cluster}".encode()).digest()[:2], "big")
    for number in ((begin + i) % _NETWORKS for i in range(_NETWORKS)):
        if number + wanted <= _NETWORKS and used.isdisjoint(range(_FIRST + number, _FIRST + number + wanted)):
            return network_name(_FIRST + number)
    raise ClusterUnfit(
        f"{plural(nodes, 'node')} need {plural(wanted, 'network')} of loopback addresses, one after the other, and of "
        f"the {_NETWORKS:,} that there are {plural(len(used), 'is', 'are')} taken",
        "ask for fewer nodes, or remove clusters with `lab down --all`",
    )


def node_address(network: str, node_rank: int) -> str:
    """A node's loopback address: in the network with these two middle octets, or where that is full, in the next."""
    next_networks, place = divmod(node_rank, _NODES_OF_A_NETWORK)
    return f"127.{network_name(network_number(network) + next_networks)}.{place + 1}"


def network_number(network: str) -> int:
    """Which of all networks it is, from its two middle octets."""
    upper, lower = map(int, network.split("."))
    return upper * 256 + lower


def network_name(number: int) -> str:
    """The two middle octets of a network."""
    return f"{number // 256}.{number % 256}"


def count_nodes(data: Mapping[str, Any]) -> int:
    """How many nodes a cluster of this description was made with; 0 where it does not say."""
    return int(json.loads(data.get("shape", "{}")).get("nodes", 0))


def _count_networks(nodes: int) -> int:
    """How many networks, one after the other, so many nodes take."""
    return -(-nodes // _NODES_OF_A_NETWORK)


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
    site = str(folder / "site")
    start = f"import sys; sys.path.append({site!r}); from labnode.node.local_nodes import main; main()"
    agents = [
        {
            "node": node,
            "root": str(folder / node),
            "container": False,
            "import_root": site,
            "socket": str(folder / f"{node}.sock"),
            "memory_bytes": shape.memory_bytes,
            "disk_bytes": shape.disk_bytes,
            "shared": str(folder / "shared"),
            "packages": packages,
        }
        for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
    ]
    environment = {"GLOO_SOCKET_IFNAME": "lo", **shape.env, MARK: str(folder)}
    argv = [sys.executable, "-c", start, str(folder / LIFE), str(folder / CONTROL)]
    description = {"shape": shape.to_json(), "network": network, "run": run, "version": __version__}
    description |= {"python": sys.executable, "packages": packages}
    return [
        Request(what=f"folder {folder}", body={DESCRIPTION: description}),
        Request(
            what=f"process of {shape.nodes} agents", body={"argv": argv, "agents": agents, "environment": environment}
        ),
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
