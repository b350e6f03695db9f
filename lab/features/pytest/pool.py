"""Warm clusters of one pytest process: made when a test first asks for that shape, kept for all others that do."""

from __future__ import annotations

import ast
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import __version__
from lab.cluster import DEFAULT_NODES, Cluster
from lab.engine.interrupts import uninterrupted
from lab.engine.ownership import default_name, digest
from lab.engine.protocol import Engine
from lab.engine.select import CHOICES, select_engine
from lab.errors import ClusterBusy, ImageError, Interrupted, LabError, RanksFailed
from lab.feature import hook
from lab.features.functions.calling import calling_of, run_ranks
from lab.features.pytest.guard import Guard
from lab.features.pytest.session import DEADLINE, POOL
from lab.plan.limits import Machine
from lab.record.layout import RUNS
from lab.record.read import Turn
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.run.lock import forget, keeper_lock
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.features.functions.pack import How


def lay_beside(request: pytest.FixtureRequest) -> None:
    """Have `result.calls.matches_snapshot()` keep its files beside the file of the test, until that is over."""
    keep = hook("keep_beside_test")
    if keep is not None:
        item = request.node
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", item.nodeid.partition("::")[2]).strip("-")
        request.addfinalizer(keep(item.path, name, "`pytest --lab-update`", wants_update(item.config)))


def wants_update(config: pytest.Config) -> bool | None:
    """True where snapshots are written anew; None: only those that are missing, and none in CI."""
    return True if config.getoption("lab_update") else None


_LONG_S = 8.0


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
        long = time.monotonic() - self._began > _LONG_S
        if threading.current_thread() is not threading.main_thread():
            return  # the terminal is that of whoever imports, or waits
        if self._terminal is None or not (long or text.startswith("warning")):
            return
        with nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled():
            self._terminal.write_line(f"lab: {harmless(text)}")


_SAID = b"lab.distributed"
_MARKED = b"mark.lab"
"""A marker may ask for another one: then nothing is made ahead."""
_SHAPE = ("nodes", "nproc_per_node", "engine")
_OTHERS = ("timeout_s", "fresh")


class Ahead:
    """Does one thing in a thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._begun = False

    def begin(self, action: Callable[[], object]) -> None:
        """Begin with it; only the first time counts. If it fails, whoever asks for it will be told."""
        if self._begun:
            return
        self._begun = True

        def act() -> None:
            with suppress(Exception):  # what is wrong is said by the test that asks for it
                action()

        self._thread = threading.Thread(target=act, name="lab-ahead", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is done; it need not wait for itself."""
        thread, me = self._thread, threading.current_thread()
        if thread is not None and thread is not me:
            thread.join()
            self._thread = None


def make_ahead(path: Path, config: pytest.Config) -> None:
    """Begin to make the cluster of the first function in a file that is marked as distributed, if it will be used."""
    chosen = (config.getoption(name, None) for name in ("collectonly", "keyword", "markexpr", "setupplan", "setuponly"))
    if any(chosen) or hasattr(config, "workerinput") or any("::" in word for word in config.args):
        return
    shape = shape_ahead(path)
    told = config.getoption("lab_engine")
    if shape is None or ("auto" not in (told, shape.get("engine", "auto")) and shape["engine"] != told):
        return

    pool = pool_of(config)
    pool.ahead.begin(lambda: pool.cluster(**shape))


def shape_ahead(path: Path) -> dict[str, Any] | None:
    """What the first `lab.distributed(...)` of a file says of its cluster; None where that cannot be read."""
    try:
        source = path.read_bytes()
        if _SAID not in source or _MARKED in source:
            return None
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.distributed":
            said = {word.arg: word.value for word in node.keywords if word.arg not in _OTHERS}
            if node.args or not all(isinstance(value, ast.Constant) for value in said.values()):
                return None
            shape = {str(name): value.value for name, value in said.items() if isinstance(value, ast.Constant)}
            fits = all(
                name in _SHAPE and type(value) is (str if name == "engine" else int) for name, value in shape.items()
            )
            return shape if fits and shape.get("engine", "auto") in CHOICES else None
    return None


_ENDING_S = 6.0
"""What the lab takes at most, as a rule, to say where the ranks of a run hang and to end them."""


class Runs:
    """The runs of a session: where they are recorded, and those of the test that runs now."""

    def __init__(self, config: pytest.Config) -> None:
        report = config.getoption("lab_report")
        self.folder = Path(config.invocation_params.dir, report or RUNS)
        worker: dict[str, Any] = getattr(config, "workerinput", {})
        self._suite = worker.get("testrunuid") or f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        self._update = wants_update(config)
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
        self._fresh = False
        self.network: str | Mapping[str, Any] | None = None
        """What its links are like in each run of the test that has it; None: as they are, or the scenario says."""

    def begin_test(self) -> None:
        """What the runs of other tests left in the folder that all nodes share is not there for the next run."""
        self._fresh = True

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
        options, self._fresh = replace(options, fresh=options.fresh or self._fresh), False
        return self._runs.take(super().run(scenario, args=args, observer=observer, options=options))

    def run_all(
        self,
        scenarios: Sequence[Scenario],
        *,
        observer: Observer | None = None,
        options: RunOptions | None = None,
        started: Callable[[Scenario], None] = lambda _: None,
        ended: Callable[[Scenario, Result | LabError], None] = lambda *_: None,
    ) -> list[Result | LabError]:
        """Run many scenarios one after the other; see `Cluster.run_all`."""
        options = self._on_its_network(replace(options or RunOptions(), runs=self._runs.folder))
        outcomes = super().run_all(scenarios, observer=observer, options=options, started=started, ended=ended)
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
            return calling_of(self, self._run_called).call(function, arguments, named, how)
        except RanksFailed:
            if self.called is not None:
                self._runs.of_test.append(self.called)
            raise

    def _run_called(self, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        return run_ranks(self, scenario, self._on_its_network(self._runs.options(scenario, options)), observer)

    def _on_its_network(self, options: RunOptions) -> RunOptions:
        return options if self.network is None else replace(options, network=options.network or self.network)


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
