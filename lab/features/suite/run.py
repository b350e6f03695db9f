"""Run suites: make cases from the request, and run them on parallel warm clusters, with a thread for each."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.engine.doctor import AGENT_BYTES, WORKER_BYTES, free_memory_bytes
from lab.errors import ClusterUnfit, Interrupted, LabError, MachineLacks, UsageError, wrap_internal_error
from lab.features.suite.cases import Case, Matrix, Outcome, SuiteRequest, SuiteResult, make_cases
from lab.features.suite.pool import WorkerPool, hold_warm_cluster
from lab.features.suite.view import Watcher
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.plan import PlanOptions, has_wishes, refuse_unfit
from lab.record.read import Turn
from lab.run.cluster_slot import ClusterSlot, RunAttempt, WarmCluster, refuse_foreign_wishes
from lab.run.options import RunOptions, suite_name
from lab.spec.load import find_scenarios, open_scenario
from lab.spec.scenario import Scenario
from lab.words import format_bytes, format_count

_POLL_S = 0.1
_SEEDS = 1_000_000
"""A random seed is smaller, so that people can type it."""
CORES_PER_CLUSTER = 2
"""Ranks of a run wait for each other about as long as they compute."""

WORTH_IT = 5.0
"""A new cluster is worth making if the remaining work of each existing one takes this many times as long."""
_GUESS_S = 1.0
"""Assumed seconds of an unknown case."""


def execute_suite(asked: SuiteRequest, watcher: Watcher | None = None) -> SuiteResult:
    """Run a suite; after Ctrl-C, return the outcomes so far.

    Raises:
        UsageError: No case can run.
        EngineUnavailable: No engine answers.
        ClusterUnfit: The named cluster is in use.
        LabError: No worker could begin; later errors are in the outcomes.
    """
    return _Suite(asked, watcher or Watcher()).run()


def _cases_on(slot: ClusterSlot, asked: SuiteRequest, seed: int | None) -> tuple[list[Case], ClusterInfo | None]:
    """Make the cases; also return the cluster that is up if all of them can run on it one after the other."""
    try:
        there = slot.find_fitting() if asked.jobs in (None, 1) else None
        if there is not None:
            cases = make_cases(asked, slot.engine.name, there.shape, seed)
            for case in cases:
                if not case.skipped and has_wishes(case.scenario):
                    raise ClusterUnfit(f"{case.id} needs another kind of cluster than {there.name}")
                if not case.skipped:
                    size = PlanOptions(nodes=case.nodes, nproc_per_node=case.nproc_per_node)
                    refuse_unfit(there, case.scenario, size)
            return cases, there
    except ClusterUnfit as unfit:
        slot.announce(f"using separate clusters: {unfit.message}")
    return make_cases(asked, slot.engine.name, seed=seed), None


# -- how many clusters, which, and in which order


def choose_jobs(asked: int | None, cases: Sequence[Case], cores: int, free_bytes: int | None) -> tuple[int, str]:
    """Return the most clusters in parallel, never more than cases, and the reason in one line.

    Args:
        asked: Requested number; None: as many as cores and memory support.
        cases: Cases that can run.
        cores: Cores of this machine.
        free_bytes: Free memory of this machine; None: unknown.
    """
    each_bytes = max((case.nodes * AGENT_BYTES + case.world_size * WORKER_BYTES for case in cases), default=1)
    supported = by_cores = max(1, cores // CORES_PER_CLUSTER)
    machine = format_count(cores, "core")
    if free_bytes is not None:
        supported = min(by_cores, max(1, free_bytes // each_bytes))
        machine = f"{machine}, {format_bytes(free_bytes)} of memory free, {format_bytes(each_bytes)} for each"
    most = max(1, min(asked or supported, len(cases)))
    clusters = f"{'at most ' if most > 1 else ''}{format_count(most, 'cluster')}"
    if most == len(cases) and most < (asked or supported):
        return most, f"{clusters}: there {'are' if most > 1 else 'is'} {format_count(most, 'case')}"
    return most, f"{clusters} (-j {asked})" if asked else f"{clusters}: this machine has {machine}"


def order_cases(cases: Sequence[Case], shuffle: int | None) -> list[int]:
    """Return the numbers of the cases that can run, in the order in which they start.

    Args:
        cases: All cases.
        shuffle: Seed of a random order; None: the order of the cases.
    """
    order = [number for number, case in enumerate(cases) if not case.skipped]
    if shuffle is not None:
        random.Random(shuffle).shuffle(order)
    return order


def choose_cluster(case: Case, queue: Iterable[Case]) -> Shape:
    """Return the shape of a cluster that fits a case and all waiting cases that can share it."""
    return replace(case.shape, nodes=max(one.nodes for one in (case, *queue) if one.cluster_key == case.cluster_key))


def is_worth_making(waiting: int, serving: int, *, took_s: Sequence[float], make_s: float) -> bool:
    """Return whether one more cluster saves more time than making it costs.

    Args:
        waiting: Cases that it could run.
        serving: Clusters that run such cases now.
        took_s: Seconds of the cases so far.
        make_s: Seconds to make a cluster; 0: none was made.
    """
    if serving == 0 or not make_s:
        return serving == 0
    usual_s = sum(took_s) / len(took_s) if took_s else _GUESS_S
    return waiting * usual_s / serving > WORTH_IT * make_s


# -- one suite


@dataclass
class _Worker:
    """A thread that runs cases one after the other on a warm cluster."""

    number: int
    slot: ClusterSlot
    cluster: Shape | None = None
    """Requested shape of its cluster; None: it has no cluster."""
    case: int | None = None
    """Number of its current case; None: it is idle."""
    since: float = 0.0
    """Monotonic time when the run began; 0: it is still making its cluster."""
    used: bool = False
    """Whether it has had a cluster."""
    over: bool = False
    """Whether it takes no more cases after its last run."""


class _Suite:
    """One suite while it runs."""

    def __init__(self, asked: SuiteRequest, watcher: Watcher) -> None:
        if asked.matrix.image:  # the user named them, not a scenario
            asked = replace(asked, options=replace(asked.options, pull=True))
        self.asked, self.watcher, self.seed, self.suite = asked, watcher, asked.seed, suite_name()
        cluster = Cluster(name=asked.name, engine=asked.engine, announce=partial(watcher.announce, 0), **asked.shape)
        if self.seed is None and (asked.shuffle or asked.repeat > 1):
            self.seed = int.from_bytes(os.urandom(4), "big") % _SEEDS
        seed = self.seed if asked.repeat > 1 or asked.seed is not None else None
        self.cases, there = _cases_on(cluster.slot, asked, seed)
        if not (can_run := [case for case in self.cases if not case.skipped]):
            reasons = "; ".join(dict.fromkeys(case.skipped for case in self.cases))
            if len(self.cases) == 1:
                raise UsageError(reasons)
            raise UsageError(f"none of {len(self.cases)} cases can run: {reasons}", "--list shows them")
        self.stays = there is not None
        """Whether the only worker uses an existing cluster, which stays."""
        names = [cluster.name]
        self.why = f"all cases, one after the other, on cluster {cluster.name}, which is up"
        """Explains the number of clusters."""
        if not self.stays:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            jobs, self.why = choose_jobs(asked.jobs, can_run, cores, free_memory_bytes())
            names = [f"{cluster.name[:32]}-{self.suite[-4:]}-{number}" for number in range(1, jobs + 1)]
        self.workers = [_Worker(number, replace(cluster.slot, name=one)) for number, one in enumerate(names, start=1)]
        self.queue = order_cases(self.cases, self.seed if asked.shuffle else None)
        """Numbers of the cases that have not started, in order."""
        self.attempts: dict[int, list[RunAttempt]] = {number: [] for number in self.queue}
        """Attempts of each case that can run, by its number."""
        self.outcomes = {n: Outcome.without_run(case) for n, case in enumerate(self.cases) if case.skipped}
        self.pool = WorkerPool()
        """Its lock protects the fields below and calls of the watcher."""
        self.took_s = list[float]()
        """Seconds of the cases that ended."""
        self.make_s = 0.0
        """Seconds to make the slowest cluster; 0: none was made."""
        self.failures = self.stop_code = 0
        self.stopped = ""
        """Why no more cases start."""
        self.failure: LabError | None = None
        """Why a worker cannot work at all."""

    def run(self) -> SuiteResult:
        """Run the suite."""
        began, started = time.time(), time.monotonic()
        self.watcher.begins(self.why, len(self.cases), len(self.workers))
        for outcome in self.outcomes.values():
            self.watcher.ended(outcome, len(self.outcomes))
        works = [partial(self._work, worker) for worker in self.workers]
        self.pool.run(works, tick=self.watcher.tick, interrupted=self._interrupted)
        if self.failure is not None and not any(outcome.attempts for outcome in self.outcomes.values()):
            raise self.failure
        for number, attempts in self.attempts.items():
            if attempts and number not in self.outcomes:  # it waited for a retry
                self._close_case(number)
        return SuiteResult(
            suite=self.suite,
            outcomes=tuple(self.outcomes[number] for number in sorted(self.outcomes)),
            planned=len(self.cases),
            clusters=sum(worker.used for worker in self.workers),
            began=began,
            duration_s=time.monotonic() - started,
            seed=self.seed,
            stopped=self.stopped if len(self.outcomes) < len(self.cases) else "",
            stop_code=self.stop_code,
        )

    def _interrupted(self) -> None:
        self.watcher.announce(0, "interrupted; removing the clusters, which takes a moment")
        self._stop("interrupted", Interrupted.exit_code)

    # -- in the thread of a worker

    def _work(self, worker: _Worker) -> None:
        """Run cases until there are no more."""
        try:
            if (shape := self._next(worker)) is None:
                return
            slot = replace(worker.slot, announce=partial(self._announce, worker))
            made_for, wait_s = None if self.stays else self.suite, self.asked.options.wait_s
            with hold_warm_cluster(slot, shape, made_for, f"suite {self.suite}", wait_s) as warm_cluster:
                while shape is not None:
                    if warm_cluster.shape != shape and not self.stays:
                        warm_cluster.clear()
                        warm_cluster.shape = shape
                    self._run(worker, warm_cluster)
                    shape = self._next(worker)
        except Exception as error:  # noqa: BLE001  # neither can the others work
            with self.pool.turn:
                self.failure = error if isinstance(error, LabError) else wrap_internal_error(error)
                self._stop(self.failure.message, self.failure.exit_code)

    def _announce(self, worker: _Worker, text: str) -> None:
        with self.pool.turn:
            self.watcher.announce(worker.number, text)
            if self.pool.stopping and worker.case is not None and not worker.since:
                raise KeyboardInterrupt  # do not wait for the end of the cluster's creation

    def _run(self, worker: _Worker, warm_cluster: WarmCluster) -> None:
        """Run the current case of a worker; an error before the run is its outcome too."""
        assert worker.case is not None
        number, case, began, making = worker.case, self.cases[worker.case], time.monotonic(), False
        attempt = len(self.attempts[number]) + 1
        turn = Turn(suite=self.suite, number=number + 1, of=len(self.attempts), case=case.id, attempt=attempt)
        options = replace(self.asked.options, turn=turn, nodes=case.nodes, nproc_per_node=case.nproc_per_node)
        options = replace(options, backend=case.backend)
        try:
            refuse_foreign_wishes(case.scenario, warm_cluster.slot.engine, warm_cluster.slot.asked, options)
            if making := warm_cluster.cluster is None:
                warm_cluster.ensure_ready()
                self.make_s = max(self.make_s, time.monotonic() - began)
            making, began = False, time.monotonic()
            with self.pool.turn:
                worker.since = began
                self.watcher.working(worker.number, "runs", case)
            tried = warm_cluster.attempt(case.scenario, options, self.pool)
        except LabError as error:
            tried = RunAttempt.failed(case.scenario, error, time.monotonic() - began)
        with self.pool.turn:
            worker.over = warm_cluster.is_last(tried)
            self._handle_attempt(worker, number, tried, making)

    # -- the next case

    def _next(self, worker: _Worker) -> Shape | None:
        """Wait for the next case of a worker; return the shape its cluster must have; None: there is no case.

        If its cluster does not fit, the caller replaces the cluster by one of this shape.
        """
        with self.pool.turn:
            worker.case = None
            self.pool.turn.notify_all()
            while (number := None if worker.over else self._next_for(worker)) is None:
                if worker.over or worker.cluster is not None or all(one.case is None for one in self.workers):
                    return None
                self.pool.turn.wait(_POLL_S)  # another cluster can be worth making later
            case = self.cases[number]
            self.queue.remove(number)
            worker.case, worker.since, worker.used = number, 0.0, True
            if worker.cluster is None or not case.fits(worker.cluster):
                worker.cluster = choose_cluster(case, [self.cases[one] for one in self.queue])
                self.watcher.working(worker.number, "creates its cluster", None)
            return worker.cluster

    def _next_for(self, idle: _Worker) -> int | None:
        """Return the number of the case that an idle worker should run; None if there is nothing for it now."""
        if idle.cluster is not None:
            for number in self.queue:
                if self.cases[number].fits(idle.cluster):
                    return number
        busy = [(one, self.cases[one.case].cluster_key) for one in self.workers if one.case is not None]
        took_s = [*self.took_s, *(time.monotonic() - one.since for one, _ in busy if one.since)]
        for cluster_key in dict.fromkeys(self.cases[number].cluster_key for number in self.queue):
            numbers = [number for number in self.queue if self.cases[number].cluster_key == cluster_key]
            serving = sum(key == cluster_key for _, key in busy)
            if is_worth_making(len(numbers), serving, took_s=took_s, make_s=self.make_s):
                return numbers[0]
        return None

    # -- outcomes

    def _handle_attempt(self, worker: _Worker, number: int, attempt: RunAttempt, no_cluster: bool) -> None:
        self.watcher.working(worker.number, "", None)
        result, case = attempt.result, self.cases[number]
        if result.exit_code == Interrupted.exit_code:
            self._stop("interrupted", Interrupted.exit_code)
            return
        if no_cluster:
            worker.cluster = None
        if isinstance(attempt.error, MachineLacks):
            self.cases[number] = replace(case, skipped=result.reason)
            self._close_case(number)
            return
        if not no_cluster:
            self.took_s.append(attempt.took_s)
        self._count_attempt(number, attempt, final=no_cluster or worker.over)
        if worker.over:
            self._stop(result.reason, result.exit_code)
        elif no_cluster:  # other cases that need the same cluster fail too
            for other in [one for one in self.queue if self.cases[one].cluster_key == case.cluster_key]:
                self.queue.remove(other)
                self._count_attempt(other, replace(attempt, took_s=0.0), final=True)

    def _count_attempt(self, number: int, attempt: RunAttempt, *, final: bool) -> None:
        """Count an attempt of a case, and retry the case if the request allows that."""
        attempts, most = self.attempts[number], self.asked.most_failures
        attempts.append(attempt)
        if not attempt.result.passed and not final and len(attempts) <= self.asked.retries and not self.stopped:
            self.watcher.again(self.cases[number], len(attempts), self.asked.retries + 1, attempt)
            self.queue.insert(0, number)
            return
        self._close_case(number)
        self.failures += not attempt.result.passed
        if most is not None and self.failures >= most:
            self._stop(f"{self.failures} cases have failed" if self.failures > 1 else "a case has failed", 0)

    def _close_case(self, number: int) -> None:
        outcome = self.outcomes[number] = Outcome(case=self.cases[number], attempts=tuple(self.attempts[number]))
        self.watcher.ended(outcome, len(self.outcomes))

    def _stop(self, why: str, code: int) -> None:
        """Start no more cases."""
        self.queue.clear()
        self.stopped = self.stopped or why
        self.stop_code = max(self.stop_code, code)


def run_suite(
    paths: Iterable[str | Path | Scenario],
    *,
    nodes: Sequence[int] = (),
    nproc_per_node: Sequence[int] = (),
    image: Sequence[str] = (),
    watcher: Watcher | None = None,
    options: RunOptions | None = None,
    **settings: Any,
) -> SuiteResult:
    """Run many scenarios on parallel warm clusters, as `lab test` does, and remove all clusters at the end.

    Args:
        paths: YAML files, folders, scripts, lessons as `"@scatter"`, or `Scenario`s.
        nodes: Numbers of nodes; each scenario runs with each of them.
        nproc_per_node: Numbers of workers on each node.
        image: Images; each scenario runs in each of them.
        watcher: Called with events of the suite.
        options: Options of each run.
        **settings: `jobs`, `retries`, `repeat`, `shuffle`, `seed`, `most_failures`, `only`, `engine`, `name`, `shape`.

    Raises:
        ScenarioError: A scenario is invalid.
        UsageError: No case can run.
        EngineUnavailable: No engine answers.
    """
    scenarios: list[Scenario] = []
    for path in paths:
        scenarios += [path] if isinstance(path, Scenario) else map(open_scenario, find_scenarios([Path(path)]))
    matrix = Matrix(nodes=tuple(nodes), nproc_per_node=tuple(nproc_per_node), image=tuple(image))
    asked = SuiteRequest(scenarios=scenarios, matrix=matrix, options=options or RunOptions(), **settings)
    return execute_suite(asked, watcher)
