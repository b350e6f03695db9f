"""Cutting the power of local nodes, and giving it back: their parent forks an agent again."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lab.engine.held import agent_pid, ask_holder, await_end, has_ended, paused_file, stopped_file
from lab.engine.local.create import await_agents
from lab.engine.local.state import CONTROL
from lab.engine.protocol import Announce
from lab.errors import ClusterError
from lab.node import processes
from lab.plan.cluster import Node
from lab.words import plural

ENDING_S = 5.0
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
    running = processes.stand_still(lambda: [pid, *processes.descendants(pid)], ENDING_S)
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
        await_end(node, ENDING_S)


def start(folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
    """Have agents forked for nodes that do not run, and wait until they answer.

    Raises:
        ClusterError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'local node')} again")
    for node in nodes:
        await_end(node, ENDING_S)
        stopped_file(node.handle).unlink(missing_ok=True)
        ask_holder(folder / CONTROL, node)
    await_agents(nodes, lambda: any(map(has_ended, nodes)), folder, announce)
