"""Create a local cluster: a folder, and one process that imports torch and forks an agent for each node."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import __version__
from lab.engine.agent_holder import DESCRIPTION, read_description
from lab.engine.protocol import Request, refuse_for_one_host
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape
from lab.words import format_count

CLUSTER_VARIABLE = "LAB_LOCAL_CLUSTER"
"""Environment variable of every process of a cluster."""
_NODES_OF_A_NETWORK = 250
CONTROL, LIFE, LOG = "zygote.sock", "zygote.lock", "zygote.log"
"""Files of a cluster: the socket at which its process accepts requests for an agent, its lock, and its output."""
_FIRST, _NETWORKS = 256, 254 * 256
"""The first network is 127.1.0, the last 127.254.255."""


def free_network(home: Path, cluster: str, nodes: int) -> str:
    """Return the middle octets of the first of consecutive networks 127.A.B.n that no cluster of this owner uses.

    Raises:
        ClusterUnfit: too few are free.
    """
    import hashlib  # a slow import, and most commands create no cluster

    used: set[int] = set()
    for data in filter(None, map(read_description, home.glob("*"))):
        first = network_number(data["network"])
        used.update(range(first, first + _count_networks(count_nodes(data))))
    wanted = _count_networks(nodes)
    begin = int.from_bytes(hashlib.sha256(f"{home}/{cluster}".encode()).digest()[:2], "big")
    for number in ((begin + i) % _NETWORKS for i in range(_NETWORKS)):
        if number + wanted <= _NETWORKS and used.isdisjoint(range(_FIRST + number, _FIRST + number + wanted)):
            return network_name(_FIRST + number)
    needed = f"{format_count(nodes, 'node')} need {format_count(wanted, 'consecutive network')} of loopback addresses"
    why = f"{needed}; {len(used):,} of {_NETWORKS:,} are in use"
    raise ClusterUnfit(why, "ask for fewer nodes, or remove clusters with `lab down --all`")


def node_address(network: str, node_rank: int) -> str:
    """Return a node's loopback address in the network with these middle octets, or the next one if it is full."""
    next_networks, index = divmod(node_rank, _NODES_OF_A_NETWORK)
    return f"127.{network_name(network_number(network) + next_networks)}.{index + 1}"


def network_number(network: str) -> int:
    """Return the number of a network, from its two middle octets."""
    upper, lower = map(int, network.split("."))
    return upper * 256 + lower


def network_name(number: int) -> str:
    """Return the two middle octets of a network."""
    return f"{number // 256}.{number % 256}"


def count_nodes(data: Mapping[str, Any]) -> int:
    """Return the number of nodes in a cluster's description; 0 if it is missing."""
    return int(json.loads(data.get("shape", "{}")).get("nodes", 0))


def _count_networks(nodes: int) -> int:
    """Return the number of consecutive networks for this many nodes."""
    return -(-nodes // _NODES_OF_A_NETWORK)


def requests_for(
    home: Path, cluster: str, shape: Shape, *, network: str, run: str | None, packages: str = ""
) -> list[Request]:
    """Return the folder with its description, and the process that forks agents.

    Args:
        home: the folder of all local clusters.
        cluster: its name.
        shape: its shape.
        network: the two middle octets of its addresses.
        run: the run that will remove it, if any.
        packages: the virtual environment of the workers; empty: none.

    Raises:
        ClusterUnfit: the local engine does not support this shape.
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
            "store": str(folder / "contents"),
            "packages": packages,
        }
        for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
    ]
    environment = {"GLOO_SOCKET_IFNAME": "lo", **shape.env, CLUSTER_VARIABLE: str(folder)}
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
                f"the local engine cannot mount {volume.source} at {volume.target}: its nodes are on this machine",
                f"use {volume.source} as the target too, or the docker engine",
            )
    if shape.strict:
        why = "--strict needs the docker engine: local workers run as your own user"
        raise ClusterUnfit(why, "use --engine docker")
    if shape.image is not None:
        hint = "leave the image out, or use --engine docker"
        raise ClusterUnfit(f"the local engine cannot use the image {shape.image}: it has no images", hint)
