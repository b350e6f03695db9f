"""Containers that stand still, or may use less than they were made with."""

from __future__ import annotations

from lab.engine.capability import Throttle
from lab.engine.docker.connection import Connection
from lab.plan.cluster import Node
from lab.plan.limits import Machine

_PER_CORE = 1_000_000_000


def paused(connection: Connection, node: Node) -> bool:
    """Whether a container stands still."""
    return bool(connection.inspect(node.handle)["State"]["Paused"])


def limit(connection: Connection, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
    """Let a container use no more; swap is none of it.

    Raises:
        Refused: the engine would not.
    """
    limits = {} if cpus is None else {"NanoCpus": int(cpus * _PER_CORE)}
    limits |= {} if memory_bytes is None else {"Memory": memory_bytes, "MemorySwap": memory_bytes}
    connection.update(node.handle, limits)


def throttle(connection: Connection, node: Node, machine: Machine) -> Throttle:
    """What a container may use now."""
    said = connection.inspect(node.handle)["HostConfig"]
    return Throttle((said["NanoCpus"] / _PER_CORE) or machine.cores, said["Memory"] or machine.memory_bytes)
