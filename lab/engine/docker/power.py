"""Cutting the power of containers, and giving it back.

A container that was stopped on purpose says so by its name: nothing else of it can be changed while it does not run.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.engine.capability import Throttle
from lab.engine.docker.channel import DockerChannel
from lab.engine.docker.connection import Connection
from lab.engine.docker.create import Starter, await_agents, find_zygote
from lab.engine.docker.direct import Refused
from lab.engine.docker.state import STOPPED_SUFFIX
from lab.engine.protocol import Announce
from lab.errors import ClusterError
from lab.plan.cluster import ClusterInfo, Node
from lab.plan.limits import Machine
from lab.words import plural

_NOT_RUNNING = 409


def stop(connection: Connection, nodes: Sequence[Node]) -> None:
    """Kill containers where they run, and mark them as stopped.

    Raises:
        Refused: the engine would not.
    """
    connection.together(lambda node: _stop(connection, node), nodes)


def start(connection: Connection, cluster: ClusterInfo, nodes: Sequence[Node], announce: Announce) -> None:
    """Start containers that do not run, and wait until their agents are there.

    Raises:
        LabError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'node')} again")
    for node in nodes:  # one after the other: addresses are given in this order
        _name(connection, node, marked=False)
    made, channels = connection.inspect(nodes[0].handle), list[DockerChannel]()
    forked = made["HostConfig"]["Init"] is False
    starter = Starter(connection, find_zygote(connection, cluster.name) if forked else None, first=forked)
    try:
        for node in nodes:
            channels.append(starter.start(node))
    except Refused as refused:
        for channel in channels:
            channel.close()
        raise ClusterError(f"{node.name} cannot be started: {refused.explanation}", refused.hint) from refused
    await_agents(connection, starter, cluster.name, channels, made["Config"]["Image"], announce)


def _stop(connection: Connection, node: Node) -> None:
    try:
        connection.kill(node.handle)
    except Refused as refused:
        if refused.status != _NOT_RUNNING:
            raise
    _name(connection, node, marked=True)


def _name(connection: Connection, node: Node, *, marked: bool) -> None:
    """Give a container the name that it has while it is stopped, or the one that it was made with."""
    has = str(connection.inspect(node.handle)["Name"]).lstrip("/")
    wanted = has.removesuffix(STOPPED_SUFFIX) + (STOPPED_SUFFIX if marked else "")
    if wanted != has:
        connection.rename(node.handle, wanted)


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
