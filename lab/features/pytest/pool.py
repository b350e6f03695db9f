"""Warm clusters of one pytest process: made when a test first asks for that shape, kept for all others that do.

They are removed when the session is over. When this process dies before, however it dies, a guard removes them, and if
that was killed too, whoever makes a cluster next.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import __version__
from lab.cluster import DEFAULT_NODES, Cluster
from lab.engine.interrupts import uninterrupted
from lab.engine.ownership import default_name, digest
from lab.engine.protocol import Engine
from lab.engine.select import select_engine
from lab.errors import ClusterBusy, ImageError, Interrupted, LabError, RanksFailed
from lab.features.functions.calling import calling_of
from lab.features.pytest.guard import Guard, forget, keeper_lock
from lab.features.pytest.session import DEADLINE, POOL
from lab.plan.limits import Machine
from lab.record.layout import RUNS
from lab.record.read import Turn
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.run.collect import Observer
from lab.run.options import RunOptions, suite_name
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.features.functions.pack import How

_WAIT_S = 10.0
"""How long a test waits for a cluster that somebody else uses."""
_PART_OF_MEMORY = 0.8
_NODE_BYTES = 512 << 20
"""What a node may take, where nobody says: its agent with torch imported, and a small run."""
_NODES_PER_CORE = 8
"""A node that waits takes no time, but waking many does."""
_LONG_S = 8.0
_ENDING_S = 6.0
"""What the lab takes at most, as a rule, to say where the ranks of a run hang and to end them."""


def pool_of(config: pytest.Config) -> Pool:
    """The pool of this process, which is made when it is first asked for."""
    pool: Pool | None = config.stash.get(POOL, None)
    if pool is None:
        worker: dict[str, Any] = getattr(config, "workerinput", {})  # of pytest-xdist
        pool = config.stash[POOL] = Pool(
            config.getoption("lab_engine"),
            keep=config.getoption("lab_keep"),
            project=config.rootpath,
            worker=worker.get("workerid", ""),
            workers=worker.get("workercount", 1),
            runs=Runs(config),
            progress=Progress(config),
        )
    return pool


class Progress:
    """Lines of progress, once something takes so long that somebody may wonder; warnings always."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._began = 0.0

    def begin(self) -> None:
        """What is announced from now on is about something else."""
        self._began = time.monotonic()

    def announce(self, text: str) -> None:
        """A line of progress."""
        if threading.current_thread() is not threading.main_thread():
            return  # the terminal is that of whoever imports, or waits
        is_long = time.monotonic() - self._began > _LONG_S
        if self._terminal is not None and (is_long or text.startswith("warning")):
            with nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled():
                self._terminal.write_line(f"lab: {harmless(text)}")


class Runs:
    """The runs of a session: where they are recorded, and those of the test that runs now."""

    def __init__(self, config: pytest.Config) -> None:
        report = config.getoption("lab_report")
        self.folder = Path(config.invocation_params.dir, report or RUNS)
        worker: dict[str, Any] = getattr(config, "workerinput", {})
        self._suite = worker.get("testrunuid") or suite_name()
        self._update = True if config.getoption("lab_update") else None
        self._number = 0
        self._stash = config.stash
        self.of_test: list[Result] = []

    def options(self, scenario: Scenario, options: RunOptions) -> RunOptions:
        """The options of the next run: its record is one of the session's, and it is over before its test has to be."""
        self._number += 1
        own_s = scenario.timeout_s if options.timeout_s is None else options.timeout_s
        in_time_s = self.in_time(own_s)
        turn = Turn(suite=self._suite, number=self._number, of=self._number)
        runs = self.folder if options.runs == RUNS else options.runs
        update = self._update if options.update is None else options.update
        timeout_s = options.timeout_s if in_time_s == own_s else in_time_s
        return replace(options, runs=runs, turn=turn, update=update, timeout_s=timeout_s)

    def in_time(self, own_s: float) -> float:
        """How long what begins now may take, of so many seconds, so that it is over before its test has to be."""
        deadline = self._stash.get(DEADLINE, None)
        if deadline is None:
            return own_s
        left_s = deadline - time.monotonic()
        usable_s = left_s - min(_ENDING_S, left_s / 2)
        return min(own_s, max(usable_s, 0.1))

    def take(self, result: Result) -> Result:
        """Keep what came out of a run.

        Raises:
            KeyboardInterrupt: it was interrupted.
        """
        self.of_test.append(result)
        if result.exit_code == Interrupted.exit_code:
            raise KeyboardInterrupt
        return result


class WarmCluster(Cluster):
    """A cluster that lives longer than a test; see `Cluster`.

    Args:
        runs: those of the session.
        more: what `Cluster` takes.
    """

    def __init__(self, runs: Runs, **more: Any) -> None:
        super().__init__(**more)
        self._named = False  # nobody chose the name, who could have meant another one
        self._runs = runs
        self.keeping = ExitStack()
        """Holds the lock of its keeper, and lets its guard go."""
        self.fresh = False
        """Whether the next run finds nothing of what those of other tests left in the folder that all nodes share."""
        self.network: str | Mapping[str, Any] | None = None
        """What its links are like in each run of the test that has it; None: as they are, or the scenario says."""

    def run(
        self,
        scenario: Scenario | str | Path,
        *,
        args: Sequence[str] = (),
        observer: Observer | None = None,
        options: RunOptions | None = None,
        **more: Any,
    ) -> Result:
        """Run a scenario, or a plain script, on this cluster; see `Cluster.run`."""
        scenario = scenario if isinstance(scenario, Scenario) else open_scenario(Path(scenario))
        options = self._runs.options(scenario, replace(options or RunOptions(), **more))
        options = self._on_its_network(options)
        options, self.fresh = replace(options, fresh=options.fresh or self.fresh), False
        return self._runs.take(super().run(scenario, args=args, observer=observer, options=options))

    def run_all(
        self, scenarios: Sequence[Scenario], *, options: RunOptions | None = None, **more: Any
    ) -> list[Result | LabError]:
        """Run many scenarios one after the other; see `Cluster.run_all`."""
        options = self._on_its_network(replace(options or RunOptions(), runs=self._runs.folder))
        outcomes = super().run_all(scenarios, options=options, **more)
        for outcome in outcomes:
            if isinstance(outcome, Result):
                self._runs.take(outcome)
        return outcomes

    def call_as(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: How
    ) -> list[Any]:
        """Call a function on every rank, in time for the test; see `Cluster.call`."""
        __tracebackhide__ = True
        try:
            how = replace(how, timeout_s=self._runs.in_time(how.timeout_s))
            return calling_of(self).call(function, arguments, named, how)
        except RanksFailed:
            if self.called is not None:
                self._runs.of_test.append(self.called)
            raise

    def run_for(self, purpose: str, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        """Make the run that ranks are while they take calls; see `Cluster.run_for`."""
        options = self._on_its_network(self._runs.options(scenario, options))
        return super().run_for(purpose, scenario, options, observer)

    def _on_its_network(self, options: RunOptions) -> RunOptions:
        return replace(options, network=options.network or self.network)


@dataclass
class Pool:
    """The warm clusters of one process, by engine and shape."""

    choice: str
    """The engine of those who do not say."""
    keep: bool
    """Leave clusters at an orderly end, for the next session."""
    project: Path
    """The folder whose tests these are."""
    worker: str
    """Name of this process among several that share the machine; empty: it is alone."""
    workers: int
    """How many there are."""
    runs: Runs
    progress: Progress
    in_use: set[str] = field(default_factory=set)
    """Clusters that the test that runs now has asked for, by name."""

    def __post_init__(self) -> None:
        self._select: Callable[[str], tuple[Engine, str]] = cache(select_engine)
        self._machines: dict[str, Machine] = {}
        self._kept: dict[str, WarmCluster] = {}
        """By shape, the least recently used first."""
        self._impossible: dict[str, ImageError] = {}
        """Shapes whose image cannot be had: it is not tried for each test anew."""
        self._guard = Guard()
        self._process = os.getpid()
        self._ahead: threading.Thread | None = None
        """Makes a cluster before a test asks for it; whoever uses the pool waits for it."""
        self._readable = "-".join(filter(None, (default_name(self.project)[:12].strip("-"), self.worker)))

    def make_ahead(self, shape: Mapping[str, Any]) -> None:
        """Begin to make a cluster; only the first time counts. If it fails, whoever asks for it will be told."""
        if self._ahead is None:

            def make() -> None:
                with suppress(Exception):  # what is wrong is said by the test that asks for it
                    self.cluster(**shape)

            self._ahead = threading.Thread(target=make, name="lab-ahead", daemon=True)
            self._ahead.start()

    def engine(self, choice: str = "auto") -> tuple[Engine, str]:
        """The engine that is meant, and why it is another one than could be expected; empty: it is not.

        Raises:
            EngineUnavailable: it does not answer.
        """
        self._await_ahead()
        return self._select(self.choice if choice == "auto" else choice)

    def _machine(self, engine: Engine) -> Machine:
        if engine.name not in self._machines:
            self._machines[engine.name] = engine.machine()
        return self._machines[engine.name]

    def _await_ahead(self) -> None:
        if self._ahead is not None and self._ahead is not threading.current_thread():
            self._ahead.join()

    def cluster(self, *, engine: str = "auto", **shape: Any) -> WarmCluster:
        """The cluster of a shape, up and whole: made if it is not there, and made again if a test has broken it.

        Args:
            engine: where.
            shape: as `Cluster` takes it; without `nodes`, as many as `lab up` makes.

        Raises:
            LabError: it cannot be made.
        """
        where = self.engine(engine)[0]
        shape = {"nodes": DEFAULT_NODES, **shape}
        network = shape.pop("network", None)  # that of each run, not of the cluster
        if self.workers > 1 and where.traits.divides_cores and "cpus" not in shape:
            cores = self._machine(where).cores
            share = max(1.0, cores / self.workers / shape["nodes"])  # with less than a core a node is only slower
            shape |= {"cpus": share} if share < cores else {}
        self.progress.begin()
        key = f"{where.name} {sorted(shape.items())!r}"
        cluster = self._kept.pop(key, None)
        if cluster is None:
            cluster = self._make(where, key, shape)
        else:
            self._kept[key] = cluster
            holder = cluster.busy()
            if holder is None or holder["pid"] != self._process:  # else this very test has ranks there
                cluster.up(wait_s=_WAIT_S)
        cluster.fresh |= cluster.name not in self.in_use
        self.in_use.add(cluster.name)
        cluster.network = network
        return cluster

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
        cluster = self._keep(where, shape)
        cluster.network = network
        try:
            yield cluster
        finally:
            forget(where.name, cluster.name)
            cluster.keeping.close()

    def _make(self, engine: Engine, key: str, shape: dict[str, Any]) -> WarmCluster:
        if key in self._impossible:
            raise self._impossible[key].with_traceback(None)
        self._make_room(engine, shape["nodes"], _memory_bytes(shape))
        lasting = f"{self._readable}-{digest(f'{self.project} {key} {__version__}')}"
        is_kept = self.keep or keeper_lock(engine.name, lasting).path.exists()
        cluster = self._kept[key] = self._keep(engine, shape, lasting if is_kept else "")
        try:
            cluster.up(wait_s=_WAIT_S)
        except BaseException as error:
            if isinstance(error, ImageError):
                self._impossible[key] = error
            with uninterrupted():
                self._remove(key)
            raise
        return cluster

    def _keep(self, engine: Engine, shape: Mapping[str, Any], lasting: str = "") -> WarmCluster:
        """A cluster that is not up yet and is this process's alone, under a name that no other process has.

        Args:
            engine: where.
            shape: as `Cluster` takes it.
            lasting: the name of one that is kept for other sessions, which it has if nobody else has that now.
        """
        keeping, purpose = ExitStack(), f"the tests in {self.project}"
        name = f"{self._readable}-{os.urandom(5).hex()}"
        try:
            keeping.enter_context(keeper_lock(engine.name, lasting or name).held(purpose))
            name = lasting or name
        except ClusterBusy:
            keeping.enter_context(keeper_lock(engine.name, name).held(purpose))
        cluster = WarmCluster(self.runs, name=name, engine=engine, announce=self.progress.announce, **shape)
        self._guard.add(engine.name, name)
        keeping.callback(self._guard.drop, engine.name, name)
        cluster.keeping = keeping
        return cluster

    def _make_room(self, engine: Engine, nodes: int, memory_bytes: int) -> None:
        """Remove what was not used for longest, while there is no room for one more on the machine."""
        machine = self._machine(engine)
        most_bytes = machine.memory_bytes * _PART_OF_MEMORY / self.workers
        most_nodes = machine.cores * _NODES_PER_CORE / self.workers
        for key, cluster in list(self._kept.items()):
            asked = [one.place.asked for one in self._kept.values() if one.engine.name == engine.name]
            has_room = sum(one["nodes"] for one in asked) + nodes <= most_nodes
            if has_room and sum(map(_memory_bytes, asked)) + memory_bytes <= most_bytes:
                return
            if cluster.engine.name == engine.name and cluster.name not in self.in_use:
                with uninterrupted():
                    self._remove(key)

    def _remove(self, key: str) -> None:
        """Remove a cluster; if that fails, the guard tries again when this process is gone."""
        cluster = self._kept.pop(key)
        cluster.end_calls()
        try:
            cluster.engine.remove(cluster.name)
        except LabError as error:
            self.progress.announce(
                f"warning: cluster {cluster.name} is still there ({error.message}): `lab down --name {cluster.name}`"
            )
            return
        forget(cluster.engine.name, cluster.name)
        cluster.keeping.close()

    def close(self) -> list[str]:
        """Remove every cluster, or leave it for the next session; returns names of those that are left.

        It is done to its end, whoever interrupts; in a process that was forked off this one, nothing is done.
        """
        if os.getpid() != self._process:
            return []
        left = []
        with uninterrupted():
            self._await_ahead()
            for key, cluster in list(self._kept.items()):
                if self.keep:
                    cluster.end_calls()
                    del self._kept[key]
                    cluster.keeping.close()
                    left.append(cluster.name)
                else:
                    self._remove(key)
            self._guard.end()
        return left


def _memory_bytes(shape: Mapping[str, Any]) -> int:
    """What a cluster of this shape may take of the machine."""
    return int(shape["nodes"] * (shape.get("memory_bytes") or _NODE_BYTES))
