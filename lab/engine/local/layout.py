"""Where a local cluster is: its folder, what is in it, and the label that its processes carry."""

from __future__ import annotations

import json
import os
from pathlib import Path

from lab.engine import ownership

MARK = "LAB_LOCAL_CLUSTER"
"""Environment variable of every process of a cluster."""
PACKAGES_VARIABLE = "LAB_PACKAGES"
"""Environment variable that names the virtual environment of workers, where they have one."""
DESCRIPTION = "cluster.json"
DATA = "data"
"""Holds a link to each folder of data, by its name."""
LIFE = "zygote.lock"
"""Locked while the process lives that holds the nodes."""
CONTROL = "zygote.sock"
"""Where that process is asked for another agent."""
_NODES_OF_A_NETWORK = 250


def home_folder() -> Path:
    """Where this owner's local clusters live; short, because the path of a Unix socket has at most 107 bytes."""
    default = f"/tmp/lab-{os.getuid()}-{ownership.digest(ownership.owner())}"
    return Path(os.path.abspath(os.environ.get("LAB_LOCAL_HOME") or default))


def mark(home: Path, cluster: str) -> str:
    """The label of a cluster's processes."""
    return f"{home}/{cluster}"


def address(network: str, node_rank: int) -> str:
    """A node's loopback address: in the network with these two middle octets, or where that is full, in the next."""
    further, place = divmod(node_rank, _NODES_OF_A_NETWORK)
    return f"127.{network_name(network_number(network) + further)}.{place + 1}"


def networks_for(nodes: int) -> int:
    """How many networks, one after the other, so many nodes take."""
    return -(-nodes // _NODES_OF_A_NETWORK)


def network_number(network: str) -> int:
    """Which of all networks it is, from its two middle octets."""
    upper, lower = map(int, network.split("."))
    return upper * 256 + lower


def network_name(number: int) -> str:
    """The two middle octets of a network."""
    return f"{number // 256}.{number % 256}"


def is_cluster(folder: Path) -> bool:
    """Whether this engine made a folder, whole or half, and nobody put anything else there."""
    try:
        return (folder / DESCRIPTION).exists() or set(os.listdir(folder)) <= {"shared", "site", DATA}
    except OSError:
        return False


def count_nodes(folder: Path) -> int:
    """How many nodes the cluster in a folder was made with; 0 where it does not say."""
    try:
        return int(json.loads(json.loads((folder / DESCRIPTION).read_text())["shape"])["nodes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def stopped_file(handle: str) -> Path:
    """What is there as long as a node is stopped on purpose."""
    return Path(f"{handle}.stopped")
