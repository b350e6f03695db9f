"""Warm clusters of one pytest process: made when a test first asks for that shape, kept for all others that do.

They are removed when the session is over. When this process dies before, however it dies, a guard removes them, and if
that was killed too, whoever makes a cluster next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import __version__
from lab.cluster import DEFAULT_NODES
from lab.engine.interrupts import uninterrupted
from lab.engine.ownership import default_name, digest
from lab.engine.protocol import Engine
from lab.engine.select import select_engine
from lab.errors import ClusterBusy, ImageError, LabError
from lab.features.pytest.ahead import Ahead
from lab.features.pytest.guard import Guard
from lab.features.pytest.progress import Progress
from lab.features.pytest.stash import POOL
from lab.features.pytest.warm import Runs, WarmCluster
from lab.plan.limits import Machine
from lab.run.lock import forget, keeper_lock

_WAIT_S = 10.0
"""How long a test waits for a cluster that somebody else uses."""
_PART_OF_MEMORY = 0.8
_NODE_BYTES = 512 << 20
"""What a node may take, where nobody says: its agent with torch imported, and a small run."""
_NODES_PER_CORE = 8
"""A node that waits takes no time, but waking many does."""


def pool_of(config: pytest.Config) -> Pool:
    """The pool of this process, which is made when it is first asked for."""
    pool = config.stash.get(POOL, None)
    if pool is None:
        pool = config.stash[POOL] = Pool.of(config)
    return pool


@dataclass(kw_only=True)
class _Kept:
    """One cluster of the pool."""

    cluster: WarmCluster
    nodes: int
    memory_bytes: int
    """What it may take of the machine."""
    keeping: ExitStack = field(default_factory=ExitStack)
    """Holds the lock of its keeper."""


class Pool:
    """The warm clusters of one process, by engine and shape.

    Args:
        choice: the engine of those who do not say.
        keep: leave clusters at an orderly end, for the next session.
        project: the folder whose tests these are.
        worker: name of this process among several that share the machine; empty: it is alone.
        workers: how many there are.
        runs: where runs are recorded, and how.
        progress: is told what is being done.
    """

    def __init__(
        self,
        choice: str,
        *,
        keep: bool,
        project: Path,
        worker: str,
        workers: int,
        runs: Runs,
        progress: Progress,
    ) -> None:
        self.choice = choice
        self.keep = keep
        self.project = project
        self.worker = worker
        self.workers = workers
        self.runs = runs
        self.progress = progress
        self.in_use = set[str]()
        """Clusters that the test that runs now has asked for, by name."""
        self._engines: dict[str, tuple[Engine, str]] = {}
        self._machines: dict[str, Machine] = {}
        self._kept: dict[str, _Kept] = {}
        """By shape, the least recently used first."""
        self._impossible: dict[str, ImageError] = {}
        """Shapes whose image cannot be had: it is not tried for each test anew."""
        self._guard = Guard()
        self._process = os.getpid()
        self.ahead = Ahead()
        """Whoever uses the pool waits for what it does."""
        self._readable = "-".join(filter(None, (default_name(project)[:12].strip("-"), worker)))
        self._purpose = f"the tests in {project}"

    @classmethod
    def of(cls, config: pytest.Config) -> Pool:
        """As the options of a session say."""
        worker: dict[str, Any] = getattr(config, "workerinput", {})  # of pytest-xdist
        return cls(
            config.getoption("lab_engine"),
            keep=config.getoption("lab_keep"),
            project=config.rootpath,
            worker=worker.get("workerid", ""),
            workers=worker.get("workercount", 1),
            runs=Runs(config),
            progress=Progress(config),
        )

    def engine(self, choice: str = "auto") -> tuple[Engine, str]:
        """The engine that is meant, and why it is another one than could be expected; empty: it is not.

        Raises:
            EngineUnavailable: it does not answer.
        """
        self.ahead.wait()
        choice = self.choice if choice == "auto" else choice
        if choice not in self._engines:
            self._engines[choice] = select_engine(choice)
        return self._engines[choice]

    def cluster(self, *, engine: str = "auto", **shape: Any) -> WarmCluster:
        """The cluster of a shape, up and whole: made if it is not there, and made again if a test has broken it.

        Args:
            engine: where.
            shape: as `Cluster` takes it; without `nodes`, as many as `lab up` makes.

        Raises:
            LabError: it cannot be made.
        """
        self.ahead.wait()
        where = self.engine(engine)[0]
        shape = {"nodes": DEFAULT_NODES, **shape}
        network = shape.pop("network", None)  # that of each run, not of the cluster
        if self.workers > 1 and where.traits.divides_cores and "cpus" not in shape:
            shape |= self._share_of_cores(where, shape["nodes"])
        self.progress.begin()
        key = f"{where.name} {sorted(shape.items())!r}"
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = self._make(where, key, shape)
        else:
            self._kept[key] = kept
            self._see_that_it_is_whole(kept.cluster)
        if kept.cluster.name not in self.in_use:
            kept.cluster.begin_test()
        self.in_use.add(kept.cluster.name)
        kept.cluster.network = network
        return kept.cluster

    @contextmanager
    def apart(self, *, engine: str = "auto", **shape: Any) -> Iterator[WarmCluster]:
        """A cluster that is not up: a run on it makes one for itself, and removes it.

        Args:
            engine: where.
            shape: what it has besides what the scenario says.

        Raises:
            EngineUnavailable: the engine does not answer.
        """
        where, network = self.engine(engine)[0], shape.pop("network", None)
        with ExitStack() as keeping:
            name = self._new_name(where, keeping)
            self._guard.add(where.name, name)
            try:
                made = WarmCluster(self.runs, name=name, engine=where, announce=self.progress.announce, **shape)
                made.network = network
                yield made
            finally:
                self._guard.drop(where.name, name)
                forget(where.name, name)

    def _share_of_cores(self, engine: Engine, nodes: int) -> dict[str, float]:
        """A node's part of the cores where several processes test: never less than one, which would only slow it."""
        cores = self._machine(engine).cores
        share = max(1.0, cores / self.workers / nodes)
        return {"cpus": share} if share < cores else {}

    def _machine(self, engine: Engine) -> Machine:
        if engine.name not in self._machines:
            self._machines[engine.name] = engine.machine()
        return self._machines[engine.name]

    def _see_that_it_is_whole(self, cluster: WarmCluster) -> None:
        holder = cluster.busy()
        if holder is None or holder["pid"] != self._process:  # else this very test has ranks there
            cluster.up(wait_s=_WAIT_S)

    def _make(self, engine: Engine, key: str, shape: dict[str, Any]) -> _Kept:
        nodes = shape["nodes"]
        memory_bytes = nodes * (shape.get("memory_bytes") or _NODE_BYTES)
        if key in self._impossible:
            raise self._impossible[key].with_traceback(None)
        self._make_room(engine, nodes, memory_bytes)
        keeping = ExitStack()
        name = self._claim_name(engine, key, keeping)
        cluster = WarmCluster(self.runs, name=name, engine=engine, announce=self.progress.announce, **shape)
        kept = self._kept[key] = _Kept(cluster=cluster, nodes=nodes, memory_bytes=memory_bytes, keeping=keeping)
        self._guard.add(engine.name, name)
        try:
            cluster.up(wait_s=_WAIT_S)
        except BaseException as error:
            if isinstance(error, ImageError):
                self._impossible[key] = error
            with uninterrupted():
                self._remove(key)
            raise
        return kept

    def _claim_name(self, engine: Engine, key: str, keeping: ExitStack) -> str:
        """A name that is this process's alone, or that of a cluster that was kept, if nobody else has that now."""
        lasting = f"{self._readable}-{digest(f'{self.project} {key} {__version__}')}"
        if self.keep or keeper_lock(engine.name, lasting).path.exists():
            try:
                keeping.enter_context(keeper_lock(engine.name, lasting).held(self._purpose))
                return lasting
            except ClusterBusy:
                pass
        return self._new_name(engine, keeping)

    def _new_name(self, engine: Engine, keeping: ExitStack) -> str:
        """A name that nobody has, however many processes test the same project."""
        name = f"{self._readable}-{os.urandom(5).hex()}"
        keeping.enter_context(keeper_lock(engine.name, name).held(self._purpose))
        return name

    def _make_room(self, engine: Engine, nodes: int, memory_bytes: int) -> None:
        """Remove what was not used for longest, while there is no room for one more on the machine."""
        machine = self._machine(engine)
        most_bytes = machine.memory_bytes * _PART_OF_MEMORY / self.workers
        most_nodes = machine.cores * _NODES_PER_CORE / self.workers
        for key, kept in list(self._kept.items()):
            mine = [one for one in self._kept.values() if one.cluster.engine.name == engine.name]
            has_room = sum(one.nodes for one in mine) + nodes <= most_nodes
            if has_room and sum(one.memory_bytes for one in mine) + memory_bytes <= most_bytes:
                return
            if kept in mine and kept.cluster.name not in self.in_use:
                with uninterrupted():
                    self._remove(key)

    def _remove(self, key: str) -> None:
        """Remove a cluster; if that fails, the guard tries again when this process is gone."""
        kept = self._kept.pop(key)
        kept.cluster.end_calls()
        engine, name = kept.cluster.engine, kept.cluster.name
        try:
            engine.remove(name)
        except LabError as error:
            self.progress.announce(
                f"warning: cluster {name} is still there ({error.message}): `lab down --name {name}`"
            )
            return
        forget(engine.name, name)
        self._let_go(kept)

    def _let_go(self, kept: _Kept) -> None:
        self._guard.drop(kept.cluster.engine.name, kept.cluster.name)
        kept.keeping.close()

    def close(self) -> list[str]:
        """Remove every cluster, or leave it for the next session; returns names of those that are left.

        It is done to its end, whoever interrupts; in a process that was forked off this one, nothing is done.
        """
        if os.getpid() != self._process:
            return []
        left = []
        with uninterrupted():
            self.ahead.wait()
            for key, kept in list(self._kept.items()):
                if self.keep:
                    del self._kept[key]
                    kept.cluster.end_calls()
                    self._let_go(kept)
                    left.append(kept.cluster.name)
                else:
                    self._remove(key)
            self._guard.end()
        return left
