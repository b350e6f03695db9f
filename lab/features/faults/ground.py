"""What faults are done to: the nodes of a cluster that stands, by its engine and its agents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lab.engine.protocol import Engine, LimitControl, PauseControl, PowerControl, capable
from lab.errors import ClusterError
from lab.features.faults.deed_line import ask_apart
from lab.features.faults.fault_journal import HEALING, FaultJournal
from lab.features.faults.library import library
from lab.features.faults.on_node.deeds import Asked
from lab.features.faults.on_node.library import LACKING
from lab.node.messages.agent import Do, Done, LookAt, Undo
from lab.plan.cluster import ClusterInfo, Node

if TYPE_CHECKING:
    from lab.features.faults.deed_line import DeedLine
    from lab.features.faults.kind import FaultKind


class ClusterGround:
    """See `lab.features.faults.kind.Ground`."""

    def __init__(self, engine: Engine, cluster: ClusterInfo) -> None:
        self.engine = engine.name
        self.cluster = cluster.name
        self.journal = FaultJournal(engine.name, cluster.name)
        self.addresses: Mapping[str, str] = {node.name: node.address for node in cluster.nodes}
        self.ranks: Mapping[int, str] = {}
        self._engine, self._info = engine, cluster
        self.line: DeedLine | None = None
        """To the agents of the run that goes on; None: each is asked over a channel of its own."""

    def _node(self, name: str) -> Node:
        return self._info.named(name)[0]

    def running(self, node: str) -> bool:
        """Whether a node runs now."""
        return self._engine.node_state(self._node(node)).running

    def kill(self, node: str) -> None:
        """Cut its power."""
        capable(self._engine, PowerControl).kill(self._node(node))

    def start(self, node: str) -> None:
        """Start it."""
        capable(self._engine, PowerControl).start(self._info, [self._node(node)], announce=lambda _: None)
        in_force = self.in_force()
        for told in self._addressed_anew(node) if in_force else ():
            for what in in_force:
                what.renew(self, told)

    def _addressed_anew(self, node: str) -> Sequence[str]:
        """Who has to be told once more what is in force: a node that is back, and all, where it has another address."""
        before = self.addresses
        now = {one.name: one.address for info in self._engine.find(self.cluster) for one in info.nodes}
        self.addresses = {name: now.get(name) or address for name, address in before.items()}
        return [node] if self.addresses == before else [name for name in before if self.running(name)]

    def pause(self, node: str) -> None:
        """Have its processes stand still."""
        capable(self._engine, PauseControl).pause(self._node(node))

    def resume(self, node: str) -> None:
        """Have them go on."""
        capable(self._engine, PauseControl).resume(self._node(node))

    def paused(self, node: str) -> bool:
        """Whether they stand still."""
        return isinstance(self._engine, PauseControl) and self._engine.paused(self._node(node))

    def limit(self, node: str, *, cpus: float | None = None, memory_bytes: int | None = None) -> None:
        """Let it use no more."""
        capable(self._engine, LimitControl).limit(self._node(node), cpus, memory_bytes)

    def unlimit(self, node: str, *, cpus: bool = False, memory: bool = False) -> None:
        """Let it use what it was made with."""
        machine, info = self._engine.machine(), self._info
        made_cpus, made_bytes = info.shape.cpus or machine.cores, info.limits.memory_bytes or machine.memory_bytes
        capable(self._engine, LimitControl).limit(
            self._node(node), made_cpus if cpus else None, made_bytes if memory else None
        )

    def throttle(self, node: str) -> Mapping[str, float]:
        """What it may use."""
        return capable(self._engine, LimitControl).throttle(self._node(node))._asdict()

    def in_force(self) -> Sequence[FaultKind]:
        """What the journal says."""
        return [one.what for one in self.journal.standing() if one.what is not None and one.state != HEALING]

    def ask(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have its agent do something."""
        return self._answer(node, Do(_new_id(), f"faults.{deed}", dict(said)))

    def take_back(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have its agent undo something."""
        return self._answer(node, Undo(_new_id(), f"faults.{deed}", dict(said)))

    def look_at(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have its agent look at something."""
        return self._answer(node, LookAt(_new_id(), f"faults.{deed}", dict(said)))

    def _answer(self, node: str, asked: Asked) -> Mapping[str, Any]:
        if self.paused(node):
            raise ClusterError(f"{node} stands still, its agent too", "heal that first: `lab fault heal`")
        done = self._done(node, asked)
        if done.wrong == LACKING:
            self._done(node, Do(_new_id(), "faults.library", {"files": library()}))
            done = self._done(node, asked._replace(id=_new_id()))
        if done.wrong:
            raise ClusterError(f"{node}: {done.wrong}")
        return done.found

    def _done(self, node: str, asked: Asked) -> Done:
        done = self.line.ask(node, asked) if self.line is not None else None
        return done or ask_apart(self._engine, self._info, self._node(node), asked)


def _new_id() -> str:
    return os.urandom(8).hex()
