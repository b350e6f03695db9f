"""Where a Slurm cluster is: its folder on this machine, its folder that all nodes see, and its nodes' own folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lab.engine import ownership

ENGINE = "slurm"
DESCRIPTION = "cluster.json"
LIFE = "holder.lock"
"""Locked while the process lives that holds the agents."""
CONTROL = "holder.sock"
"""Where that process is asked for another agent."""
LOG = "holder.log"
FIRST = "agent.bin"
"""What every agent is sent first."""


def home_folder() -> Path:
    """Where this owner's Slurm clusters have a folder each, on this machine: another login node has others.

    It is short, because the path of a Unix socket has at most 107 bytes.
    """
    default = f"/tmp/lab-slurm-{os.getuid()}-{ownership.digest(ownership.owner())}"
    return Path(os.environ.get("LAB_SLURM_HOME", default))


def job_name(cluster: str) -> str:
    """What Slurm calls the job."""
    return f"lab-{cluster}"


def shared_folder(home: Path, cluster: str) -> Path:
    """The folder of a cluster on a file system that all nodes see."""
    default = Path.home() / ".lab" / "shared"
    return Path(os.environ.get("LAB_SLURM_SHARED", default)) / f"{cluster}-{ownership.digest(str(home))}"


def own_folder(home: Path, cluster: str, node: str) -> str:
    """The folder of a node on its machine: short, because the path of a Unix socket has at most 107 bytes."""
    return f"/tmp/lab-{os.getuid()}-{ownership.digest(str(home))}-{cluster}.{node}"


def socket_path(folder: Path, node: str) -> str:
    """Where the agent of a node is reached from this machine."""
    return str(folder / f"{node}.sock")


def stopped_file(handle: str) -> Path:
    """What is there as long as a node is stopped on purpose."""
    return Path(f"{handle}.stopped")


def paused_file(handle: str) -> Path:
    """What is there while a node stands still on purpose."""
    return Path(f"{handle}.paused")


def said_file(handle: str) -> Path:
    """What Slurm and the agent said on standard error."""
    return Path(f"{handle}.said")


def read_description(folder: Path) -> dict[str, Any] | None:
    """What a cluster's folder says of it; None where it is half made, or no cluster."""
    try:
        data = json.loads((folder / DESCRIPTION).read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and "shape" in data else None


def write_description(folder: Path, data: dict[str, Any]) -> None:
    """Replace it at once."""
    new = folder / f"{DESCRIPTION}.new"
    new.write_text(json.dumps(data))
    new.rename(folder / DESCRIPTION)


def is_cluster(folder: Path) -> bool:
    """Whether this engine made a folder, whole or half, and nobody put anything else there."""
    try:
        return (folder / DESCRIPTION).exists() or not os.listdir(folder)
    except OSError:
        return False
