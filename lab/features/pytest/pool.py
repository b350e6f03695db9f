"""Keep the warm clusters of one pytest process: created for the first test of a shape, shared by the others.

They are removed at the end of the session. If the process dies earlier, a guard removes them. If the guard was killed
too, the next command that makes a cluster removes them.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import pytest

from lab import __version__
from lab.cluster import DEFAULT_NODES, Cluster
from lab.engine.interrupts import defer_interrupts
from lab.engine.ownership import default_name, short_digest
from lab.engine.protocol import Engine
from lab.engine.select import select_engine
from lab.errors import ClusterBusy, ImageError, Interrupted, LabError, RanksFailed
from lab.features.functions.calling import Calls
from lab.features.functions.pack import CallOptions, find_modules
from lab.features.pytest.guard import keeper_lock, remove_locks, start_guard
from lab.features.pytest.stash import DEADLINE, POOL, SUMMARY_LINES
from lab.plan.limits import Machine
from lab.record.layout import RUNS
from lab.record.read import Turn
from lab.record.result import Result
from lab.report.sanitize import sanitize_text
from lab.run.options import RunOptions, suite_name
from lab.spec.scenario import Scenario
from lab.words import format_count, format_duration

_WAIT_S = 10.0
"""How long a test waits for a cluster that another process uses."""
_PART_OF_MEMORY = 0.8
_NODE_BYTES = 512 << 20
"""Assumed memory of a node without a limit: its agent with torch imported, and a small run."""
_NODES_PER_CORE = 8
"""A waiting node takes no time, but waking many does."""
_LONG_S = 8.0
_GUARD_S = 5.0
"""The guard has little left to do at a normal end; the session does not wait longer for it."""
_EARLY_END_S = 10.0
"""How long the session waits at its end for a cluster that is still being made; building an image takes minutes."""
_ENDING_S = 6.0
"""Longest time, as a rule, that the lab needs to report where ranks hang and to end them."""


def pool_of(config: pytest.Config) -> Pool:
    """Return the pool of this process; make it on first use."""
    pool: Pool | None = config.stash.get(POOL, None)
    if pool is None:
        pool = config.stash[POOL] = Pool(Session(config))
    return pool


class Session:
    """The session of pytest for a pool: the folder of records, and the runs of the current test.

    Args:
        config: Configuration of the session.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.folder = Path(config.invocation_params.dir, config.getoption("lab_report") or RUNS)
        self.worker: dict[str, Any] = getattr(config, "workerinput", {})
        """The worker of pytest-xdist that this process is, if any."""
        self._suite = self.worker.get("testrunuid") or suite_name()
        self._number = 0
        self._began = 0.0
        self.awaited: threading.Thread | None = None
        """The thread that the main thread waits for."""
        self.of_test: list[Result] = []
        self.shipped: dict[str, Path] = {}
        """The folder that nodes got last, by scenario."""

    def begin(self) -> None:
        """Start with new announcements."""
        self._began = time.monotonic()

    def announce(self, text: str) -> None:
        """Show a line of progress in a terminal or with -v, once an action takes long; keep warnings for the end."""
        if text.startswith("warning"):
            self.config.stash.setdefault(SUMMARY_LINES, []).append(sanitize_text(text))
            return
        if threading.current_thread() not in (threading.main_thread(), self.awaited):
            return  # the main thread may use the terminal now
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        capture: Any = self.config.pluginmanager.get_plugin("capturemanager")
        is_long = time.monotonic() - self._began > _LONG_S
        if terminal is not None and is_long and terminal.verbosity >= (0 if terminal.isatty else 1):
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                terminal.write_line(f"lab: {sanitize_text(text)}")

    def options(self, scenario: Scenario, options: RunOptions) -> RunOptions:
        """Return the options of the next run: the session's folder of records, and an end before that of its test."""
        self._number += 1
        self.shipped[scenario.name] = scenario.shipped
        own_s = scenario.timeout_s if options.timeout_s is None else options.timeout_s
        in_time_s = self.in_time(own_s)
        return replace(
            options,
            runs=self.folder if options.runs == RUNS else options.runs,
            turn=Turn(suite=self._suite, number=self._number, of=self._number),
            update=(self.config.getoption("lab_update") or None) if options.update is None else options.update,
            timeout_s=options.timeout_s if in_time_s == own_s else in_time_s,
            stall_s=self.config.getoption("lab_stall") if options.stall_s is None else options.stall_s,
        )

    def in_time(self, own_s: float) -> float:
        """Return the usable seconds, at most `own_s`, so that a new action ends before its test has to."""
        if (deadline := self.config.stash.get(DEADLINE, None)) is None:
            return own_s
        left_s = deadline - time.monotonic()
        return min(own_s, max(left_s - min(_ENDING_S, left_s / 2), 0.1))

    def record_result(self, result: Result) -> Result:
        """Keep the result of a run.

        Raises:
            KeyboardInterrupt: It was interrupted.
        """
        self.of_test.append(result)
        if result.exit_code == Interrupted.exit_code:
            raise KeyboardInterrupt
        return result


class SessionCluster(Calls, Cluster):
    """A cluster that several tests of a session share; see `Cluster`.

    Args:
        session: Session that it belongs to.
        settings: Arguments of `Cluster`.
    """

    def __init__(self, session: Session, **settings: Any) -> None:
        super().__init__(**settings)
        self._named = False  # users did not choose the name, so no near match helps
        self._session = session
        self.keeping = ExitStack()
        """Holds the lock of its keeper."""
        self.fresh = False
        """Whether the next run must not see the files of other tests in the shared folder."""
        self.network: str | Mapping[str, Any] | None = None
        """Link properties in each run of the test; None: unchanged, or as in the scenario."""

    def options_of(self, scenario: Scenario, options: RunOptions) -> RunOptions:
        """Return the options of a run, adapted to the session and the test."""
        fresh, self.fresh = options.fresh or self.fresh, False
        is_trusted = not self.slot.asked.get("strict") and options.calls is None
        modules = find_modules(scenario.script) if is_trusted else None
        options = replace(options, fresh=fresh, network=options.network or self.network, modules=modules)
        return self._session.options(scenario, options)

    def run(self, scenario: Scenario | str | Path, **how: Any) -> Result:
        """Run a scenario, or a plain script, on this cluster; see `Cluster.run`."""
        return self._session.record_result(super().run(scenario, **how))

    def call_as(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: CallOptions
    ) -> list[Any]:
        """Call a function on each rank, and end in time for the test; see `Cluster.call`."""
        __tracebackhide__ = True
        try:
            how = replace(how, timeout_s=self._session.in_time(how.timeout_s))
            return super().call_as(function, arguments, named, how)
        except (RanksFailed, KeyboardInterrupt):
            if self.called is not None:
                self._session.of_test.append(self.called)
            raise


class Pool:
    """The warm clusters of one process, by engine and shape.

    Args:
        session: Session of the tests.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.keep: bool = session.config.getoption("lab_keep")
        """Keep the clusters at a normal end, for the next session."""
        self.project = session.config.rootpath
        self.workers = int(session.worker.get("workercount", 1))
        """Number of pytest processes that share the machine."""
        self.in_use = set[str]()
        """Clusters that the current test has requested, by name."""
        self._choice: str = session.config.getoption("lab_engine")
        self._select: Callable[[str], tuple[Engine, str]] = cache(select_engine)
        self._machine: Callable[[str], Machine] = cache(lambda name: self._select(name)[0].machine())
        self._kept: dict[str, SessionCluster] = {}
        """By shape, the least recently used first."""
        self._early: threading.Thread | None = None
        """Creates a cluster while pytest collects."""
        self._made, self._waited_s = "", 0.0
        self._impossible: dict[str, ImageError] = {}
        """Shapes whose image is not available; the pool tries it only once."""
        self._guard: subprocess.Popen[bytes] | None = None
        self._process = os.getpid()
        parts = default_name(self.project)[:12].strip("-"), session.worker.get("workerid", "")
        self._readable = "-".join(filter(None, parts))

    def engine(self, choice: str = "auto") -> tuple[Engine, str]:
        """Return the engine, and why it is not the expected one; empty if it is.

        Raises:
            EngineUnavailable: It does not answer.
        """
        return self._select(self._choice if choice == "auto" else choice)

    def make_early(self, shape: Mapping[str, Any]) -> None:
        """Begin to create a cluster in the background, unless one was; a worker of pytest-xdist may not need it."""
        if self._early is None and self.workers == 1:
            self._early = threading.Thread(target=self._create_early, kwargs=dict(shape), daemon=True)
            self._early.start()

    def _create_early(self, **shape: Any) -> None:
        with suppress(LabError):  # the first test that needs the cluster tries again, and reports it
            self._provide(**shape)

    @property
    def summary(self) -> str:
        """Says how long the first cluster took; empty if there is none."""
        waited = f"; tests waited {format_duration(self._waited_s)} for it" if self._waited_s > 0.1 else ""
        return self._made and self._made + (waited or " while collecting" if self._early else "")

    def _await_early(self, most_s: float = inf) -> bool:
        """Wait until no other thread creates a cluster; return False if one still does after that time."""
        began, self.session.awaited = time.monotonic(), self._early
        while self._early is not None and self._early.is_alive() and time.monotonic() < began + most_s:
            self._early.join(0.1)
        self._waited_s += time.monotonic() - began
        return self._early is None or not self._early.is_alive()

    def cluster(self, **shape: Any) -> SessionCluster:
        """Return the cluster of a shape, up and whole; create it if it is missing, or if a test has broken it.

        Args:
            shape: As `Cluster` takes it; without `nodes`, the default of `lab up`.

        Raises:
            LabError: It cannot be created.
        """
        self.session.begin()
        self._await_early()
        cluster = self._provide(**shape)
        cluster.fresh |= cluster.name not in self.in_use
        self.in_use.add(cluster.name)
        cluster.network = shape.get("network")  # it belongs to each run, not to the cluster
        return cluster

    def _provide(self, *, engine: str = "auto", network: object = None, **shape: Any) -> SessionCluster:
        where = self.engine(engine)[0]
        shape = {"nodes": DEFAULT_NODES, **shape}
        if self.workers > 1 and where.traits.divides_cores and "cpus" not in shape:
            cores = self._machine(where.name).cores
            share = max(1.0, cores / self.workers / shape["nodes"])  # less than a core only slows a node down
            shape |= {"cpus": share} if share < cores else {}
        key = f"{where.name} {sorted(shape.items())!r}"
        if (cluster := self._kept.pop(key, None)) is None:
            cluster = self._make(where, key, shape)
        else:
            self._kept[key] = cluster
            holder = cluster.busy()
            if holder is None or holder["pid"] != self._process:  # else this test has ranks there
                cluster.up(wait_s=_WAIT_S)
        return cluster

    @contextmanager
    def standalone(self, *, engine: str = "auto", **shape: Any) -> Iterator[SessionCluster]:
        """Yield a cluster that is not up: a run on it creates one for itself, and removes it.

        Args:
            engine: Engine of the cluster.
            shape: Settings in addition to those of the scenario.

        Raises:
            EngineUnavailable: The engine does not answer.
        """
        where, network = self.engine(engine)[0], shape.pop("network", None)
        self._await_early()
        cluster = self._keep(where, shape)
        cluster.network = network
        try:
            yield cluster
        finally:
            remove_locks(where.name, cluster.name)
            cluster.keeping.close()

    def _make(self, engine: Engine, key: str, shape: dict[str, Any]) -> SessionCluster:
        if key in self._impossible:
            raise self._impossible[key].with_traceback(None)
        self._evict_unused(engine, shape["nodes"], _memory_bytes(shape))
        lasting = f"{self._readable}-{short_digest(f'{self.project} {key} {__version__}')}"
        is_kept = self.keep or keeper_lock(engine.name, lasting).path.exists()
        cluster, began = self._keep(engine, shape, lasting if is_kept else ""), time.monotonic()
        self._kept[key] = cluster
        try:
            cluster.up(wait_s=_WAIT_S)
            took = format_duration(time.monotonic() - began)
            self._made = self._made or f"cluster of {format_count(shape['nodes'], 'node')} made in {took}"
        except BaseException as error:
            if isinstance(error, ImageError):
                self._impossible[key] = error
            with defer_interrupts():
                self._remove(key)
            raise
        return cluster

    def _keep(self, engine: Engine, shape: Mapping[str, Any], lasting: str = "") -> SessionCluster:
        """Create a cluster object that is not up yet, under a name that only this process has.

        Args:
            engine: Engine of the cluster.
            shape: Arguments of `Cluster`.
            lasting: Name of a cluster that other sessions can use; it is used if no other process holds it now.
        """
        keeping, purpose = ExitStack(), f"the tests in {self.project}"
        name = f"{self._readable}-{os.urandom(5).hex()}"
        try:
            keeping.enter_context(keeper_lock(engine.name, lasting or name).held(purpose))
            name = lasting or name
        except ClusterBusy:
            keeping.enter_context(keeper_lock(engine.name, name).held(purpose))
        if self._guard is None or self._guard.poll() is not None:  # it was killed
            self._guard = start_guard()
        cluster = SessionCluster(self.session, name=name, engine=engine, announce=self.session.announce, **shape)
        cluster.keeping = keeping
        return cluster

    def _evict_unused(self, engine: Engine, nodes: int, memory_bytes: int) -> None:
        """Remove the least recently used clusters while the machine has no capacity for one more."""
        machine = self._machine(engine.name)
        most_bytes = machine.memory_bytes * _PART_OF_MEMORY / self.workers
        most_nodes = machine.cores * _NODES_PER_CORE / self.workers
        for key, cluster in list(self._kept.items()):
            asked = [one.slot.asked for one in self._kept.values() if one.engine.name == engine.name]
            nodes_fit = sum(one["nodes"] for one in asked) + nodes <= most_nodes
            if nodes_fit and sum(map(_memory_bytes, asked)) + memory_bytes <= most_bytes:
                return
            if cluster.engine.name == engine.name and cluster.name not in self.in_use:
                with defer_interrupts():
                    self._remove(key)

    def _remove(self, key: str) -> None:
        """Remove a cluster; if that fails, the guard tries again after this process has ended."""
        cluster = self._kept.pop(key)
        name = cluster.name
        cluster.end_calls()
        try:
            cluster.engine.remove(name)
        except LabError as error:
            why = f"could not remove cluster {name} ({error.message})"
            self.session.announce(f"warning: {why}: `lab down --name {name}`")
            return
        remove_locks(cluster.engine.name, name)
        cluster.keeping.close()

    def close(self) -> list[str]:
        """Remove each cluster, or leave it for the next session; return the names of those that are left.

        Interrupts wait until the end of it. It does nothing in a process that was forked from this one.
        """
        if os.getpid() != self._process:
            return []
        left = []
        with defer_interrupts():
            if not self._await_early(_EARLY_END_S):
                return []  # the guard removes it once this process has ended
            for key, cluster in list(self._kept.items()):
                if self.keep:
                    cluster.end_calls()
                    del self._kept[key]
                    cluster.keeping.close()
                    left.append(cluster.name)
                else:
                    self._remove(key)
            if self._guard is not None:
                with suppress(OSError, subprocess.TimeoutExpired):
                    self._guard.communicate(timeout=_GUARD_S)
                self._guard = None
        return left


def _memory_bytes(shape: Mapping[str, Any]) -> int:
    """Return the memory that a cluster of this shape can use."""
    return int(shape["nodes"] * (shape.get("memory_bytes") or _NODE_BYTES))
