"""Cutting the power of Slurm's nodes, giving it back, and having them stand still."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lab.engine.local.channel import listens
from lab.engine.protocol import Announce
from lab.errors import ClusterError
from lab.features.slurm.create import greet
from lab.features.slurm.layout import CONTROL, paused_file, stopped_file
from lab.features.slurm.on_node import beside
from lab.node.config import ended_file
from lab.plan.cluster import Node
from lab.waiting import wait_until
from lab.words import plural

_ANSWER_TIMEOUT_S = 10.0
_ENDING_S = 15.0
"""Slurm has noticed that a step ended long before."""


def kill(node: Node) -> None:
    """Kill everything below a node's first process, and wait until Slurm has seen that.

    Raises:
        ClusterError: it does not run.
    """
    beside(node, "kill")
    _await_end(node)
    paused_file(node.handle).unlink(missing_ok=True)


def stop(nodes: Sequence[Node]) -> None:
    """Kill nodes where they run, and mark them as stopped."""
    for node in nodes:
        stopped_file(node.handle).touch()
        if listens(node.handle):
            kill(node)


def start(folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
    """Have the agents of nodes that do not run started again, and wait until they answer.

    Raises:
        ClusterError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'node')} again, importing torch")
    for node in nodes:
        _await_end(node)
        _ask_for(folder, node)
        stopped_file(node.handle).unlink(missing_ok=True)
    greet(folder, nodes, announce)


def pause(node: Node) -> None:
    """Stop every process of a node.

    Raises:
        ClusterError: it does not run, or a process of it does not stop.
    """
    if not listens(node.handle):
        raise ClusterError(f"{node.name} does not run")
    paused_file(node.handle).touch()
    try:
        beside(node, "pause")
    except ClusterError:
        resume(node)
        raise


def resume(node: Node) -> None:
    """Let every process of a node go on."""
    if paused_file(node.handle).exists():
        with suppress(ClusterError):  # it does not run any more
            beside(node, "resume")
        paused_file(node.handle).unlink(missing_ok=True)


def _await_end(node: Node) -> None:
    """Wait until nobody listens there any more and it was said how its step ended, but not for ever."""
    wait_until(lambda: not listens(node.handle) and Path(ended_file(node.handle)).exists(), _ENDING_S)


def _ask_for(folder: Path, node: Node) -> None:
    """Have the process that holds the agents start that of a node."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_ANSWER_TIMEOUT_S)
            asking.connect(str(folder / CONTROL))
            asking.sendall(f"{node.name}\n".encode())
            answer = asking.recv(1024).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ClusterError(
            f"{node.name} cannot be started: the process that holds the nodes of cluster {folder.name} "
            f"does not answer ({error.strerror or error})",
            "`lab down` removes the rest, and `lab up` makes it anew",
        ) from error
    if answer:
        raise ClusterError(f"{node.name} cannot be started: {answer}", "see `lab status`")
