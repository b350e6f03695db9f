"""The target of faults: the nodes of a cluster, controlled by its engine and its agents."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from lab.engine.protocol import Engine, LimitControl, PauseControl, PowerControl, require_capability
from lab.engine.ready import closing_channels
from lab.errors import ClusterError
from lab.features.faults.on_node.actions import DEADLINE_S
from lab.node.messages import wire
from lab.node.messages.agent import ActionRequest, ActionResult
from lab.plan.cluster import ClusterInfo, Node

ANSWER_S = DEADLINE_S + 5.0
"""Seconds after which an agent counts as not answering."""
_POLL_S = 1.0


class ClusterTarget:
    """The target of faults: the nodes of a cluster, controlled by its engine and its agents.

    The caller holds the lock of the nodes: no other process injects or undoes a fault of the cluster meanwhile.
    """

    def __init__(self, engine: Engine, cluster: ClusterInfo) -> None:
        self.engine = engine.name
        self.cluster = cluster.name
        self.addresses: Mapping[str, str] = {node.name: node.address for node in cluster.nodes}
        """Address of every node of the cluster."""
        self.ranks: Mapping[int, str] = {}
        """The node of each rank of the run in progress; empty without a run."""
        self._engine, self._info = engine, cluster
        self.in_force: Callable[[], Iterable[Any]] = tuple
        """Returns the faults in force and those whose injection has begun, in order, without those that heal now."""

    def _node(self, name: str) -> Node:
        return self._info.named(name)[0]

    def running(self, node: str) -> bool:
        """Return whether a node runs, according to its engine."""
        return self._engine.node_state(self._node(node)).running

    def kill(self, node: str) -> None:
        """Cut a node's power; the cluster does not mark it as stopped on purpose."""
        require_capability(self._engine, PowerControl).kill(self._node(node))

    def start(self, node: str) -> None:
        """Start a node, wait until its agent can fork workers, and inject the faults in force again."""
        require_capability(self._engine, PowerControl).start(self._info, [self._node(node)], announce=lambda _: None)
        if in_force := [*self.in_force()]:
            now = {one.name: one.address for info in self._engine.find(self.cluster) for one in info.nodes}
            self.addresses = {name: now.get(name) or address for name, address in self.addresses.items()}
            for what in in_force:
                what.renew(self)

    def pause(self, node: str) -> None:
        """Pause every process of a running node."""
        require_capability(self._engine, PauseControl).pause(self._node(node))

    def resume(self, node: str) -> None:
        """Resume every process of a paused node."""
        require_capability(self._engine, PauseControl).resume(self._node(node))

    def paused(self, node: str) -> bool:
        """Return whether a node is paused."""
        return isinstance(self._engine, PauseControl) and self._engine.paused(self._node(node))

    def limit(self, node: str, name: str, most: float | None) -> None:
        """Set a node's limit of `cpus` or `memory_bytes`; None: its original limit."""
        info, machine = self._info, self._engine.machine()
        cpus, memory_bytes = info.shape.cpus or machine.cores, info.limits.memory_bytes or machine.memory_bytes
        made = {"cpus": cpus, "memory_bytes": memory_bytes}
        limits: dict[str, Any] = {**dict.fromkeys(made), name: made[name] if most is None else most}
        require_capability(self._engine, LimitControl).limit(self._node(node), **limits)

    def throttle(self, node: str, name: str) -> float:
        """Return a node's current limit of `cpus` or `memory_bytes`."""
        allowed = require_capability(self._engine, LimitControl).throttle(self._node(node))
        return {"cpus": allowed.cpus, "memory_bytes": allowed.memory_bytes}[name]

    def ask(self, node: str, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Have the agent of a node perform, undo, or inspect a fault action (see `on_node.actions`); return its answer.

        Raises:
            LabError: The action fails, or the agent does not answer in time.
        """
        if self.paused(node):
            raise ClusterError(f"{node} is paused, and its agent too", "resume it first: `lab fault heal`")
        done = self._send(node, ActionRequest(os.urandom(8).hex(), f"faults.{function}", dict(arguments)))
        if done.error:
            raise ClusterError(f"{node}: {done.error}")
        return done.facts

    def _send(self, node: str, request: ActionRequest) -> ActionResult:
        """Send a request to an agent over a new channel, and wait for the answer."""
        reader, poll, until = wire.LineReader(), select.poll(), time.monotonic() + ANSWER_S
        with closing_channels(self._engine.connect(self._info, [self._node(node)])) as (channel,), suppress(OSError):
            channel.send(wire.encode_message(request))
            poll.register(channel.fileno(), select.POLLIN)
            while (left_s := until - time.monotonic()) > 0:
                if not poll.poll(min(left_s, _POLL_S) * 1000) and not self.running(node):
                    break  # a stream to a container that has just ended may stay open
                if (data := channel.receive()) == b"":
                    break
                for message in reader.feed(data or b""):
                    if isinstance(message, ActionResult) and message.id == request.id:
                        return message
        raise ClusterError(f"the agent of {node} does not answer", "inspect the nodes: `lab status`")
