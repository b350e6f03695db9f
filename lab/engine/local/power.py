"""Cutting the power of local nodes, and giving it back: their parent forks an agent again."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lab.engine.local.create import greet
from lab.engine.local.state import CONTROL, agent_pid, listens, paused_file, stopped_file
from lab.engine.protocol import Announce
from lab.errors import ClusterError
from lab.node import processes
from lab.node.config import ended_file
from lab.plan.cluster import Node
from lab.waiting import wait_until
from lab.words import plural

_ANSWER_TIMEOUT_S = 10.0
_ENDING_S = 5.0
"""A killed agent is gone, and a stopped process stands, long before."""


def kill(node: Node) -> None:
    """Kill a node's agent and everything below it.

    Raises:
        OSError: it does not run.
    """
    pid = agent_pid(node)
    for victim in (pid, *processes.descendants(pid)):
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def pause(node: Node) -> None:
    """Stop every process of a node, the agent first: it starts no other then.

    Raises:
        ClusterError: it does not run, or a process of it does not stop.
    """
    try:
        pid = agent_pid(node)
    except OSError:
        raise ClusterError(f"{node.name} does not run") from None
    paused_file(node.handle).write_text(str(pid))
    running = processes.stand_still(lambda: [pid, *processes.descendants(pid)], _ENDING_S)
    if running:
        raise ClusterError(f"{plural(len(running), 'process', 'processes')} of {node.name} would not stop")


def resume(node: Node) -> None:
    """Let every process of a node go on, the agent last: it sees them run."""
    with suppress(OSError):
        pid = agent_pid(node)
        processes.go_on([pid, *processes.descendants(pid)])
    paused_file(node.handle).unlink(missing_ok=True)


def paused(node: Node) -> bool:
    """Whether a node's agent was stopped by a signal."""
    try:
        return processes.is_stopped(agent_pid(node))
    except OSError:
        return False


def stop(nodes: Sequence[Node]) -> None:
    """Kill nodes where they run, and mark them as stopped."""
    for node in nodes:
        with suppress(OSError):
            kill(node)
        stopped_file(node.handle).touch()
    for node in nodes:
        await_end(node)


def start(folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
    """Have agents forked for nodes that do not run, and wait until they answer.

    Raises:
        ClusterError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'local node')} again")
    for node in nodes:
        await_end(node)
        stopped_file(node.handle).unlink(missing_ok=True)
        _ask_for(folder, node)
    greet(nodes, lambda: any(map(_has_ended, nodes)), folder, announce)


def await_end(node: Node) -> None:
    """Wait until nobody listens there any more and its parent has said how it ended, but not for ever."""
    wait_until(lambda: not listens(node.handle) and _has_ended(node), _ENDING_S)


def _has_ended(node: Node) -> bool:
    return Path(ended_file(node.handle)).exists()


def _ask_for(folder: Path, node: Node) -> None:
    """Have the parent of the agents fork that of a node."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_ANSWER_TIMEOUT_S)
            asking.connect(str(folder / CONTROL))
            asking.sendall(f"{node.name}\n".encode())
            answer = asking.recv(1024).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ClusterError(
            f"{node.name} cannot be started: the process that holds the local nodes of cluster {folder.name} "
            f"does not answer ({error.strerror or error})",
            "`lab down` removes the rest, and `lab up` makes it anew",
        ) from error
    if answer:
        raise ClusterError(f"{node.name} cannot be started: {answer}", "see `lab status`")
