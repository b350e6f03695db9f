"""Runs suites: from what is asked to cases on warm clusters side by side, by worker processes.

The parent of the workers runs nothing itself: it hands out cases, and collects what came of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.engine.doctor import free_memory_bytes
from lab.engine.interrupts import taking
from lab.engine.ownership import check_name, default_name
from lab.engine.protocol import Engine
from lab.engine.select import select_engine
from lab.errors import ClusterUnfit, Interrupted, LabError, UsageError
from lab.features.suite.cases import (
    Attempt,
    Case,
    Jobs,
    Matrix,
    Outcome,
    Pace,
    SuiteResult,
    choose_jobs,
    cluster_for,
    cores,
    in_order,
    known_durations,
    make_cases,
    matching,
    next_fitting,
)
from lab.features.suite.view import Watcher
from lab.features.suite.worker import LAST_PATIENCE_S, Begun, Ended, Making, Refused, Task, Told, Worker, WorkerPool
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import PlanOptions, has_wishes, refuse_unfit
from lab.record.read import Turn
from lab.record.result import Result
from lab.run.options import RunOptions, suite_name
from lab.run.place import Place, reap
from lab.spec.load import find_scenarios, open_scenario
from lab.spec.scenario import Scenario

_POLL_S = 0.1
_SEEDS = 1_000_000
"""A seed that nobody asked for is smaller, so that it can be typed."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a suite."""

    scenarios: Sequence[Scenario]
    matrix: Matrix = Matrix()  # noqa: RUF009  # frozen
    only: str = ""
    """Words that names and files of cases must contain, see `lab.features.suite.cases`; empty: all."""
    engine: str | Engine = "auto"
    name: str | None = None
    """A cluster; None: that of the current folder."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a cluster's shape that were asked for."""
    options: RunOptions = RunOptions()  # noqa: RUF009  # frozen
    """How each case is run."""
    jobs: int | None = None
    """At most so many clusters side by side; None: as many as the machine carries."""
    retries: int = 0
    """How often a case that failed is tried again."""
    repeat: int = 1
    shuffle: bool = False
    """Whether the order is by chance."""
    seed: int | None = None
    """Of the order, and of the first repetition; None: one by chance, where one is needed."""
    most_failures: int | None = None
    """Nothing begins any more after so many cases have failed; None: all run."""


def cases_of(asked: Asked, there: ClusterInfo | None = None, seed: int | None = None, engine: str = "") -> list[Case]:
    """The cases that are meant.

    Args:
        asked: what is asked.
        there: a cluster that says how large a scenario is that does not say so.
        seed: of the first repetition; None: scripts are given none.
        engine: what provides the nodes; empty: that is not known yet.

    Raises:
        UsageError: there are none.
    """
    cases = make_cases(
        asked.scenarios,
        asked.matrix,
        asked=asked.shape,
        usual=there.shape if there else None,
        engine=engine,
        cold=asked.options.cold,
        repeat=asked.repeat,
        seed=seed,
    )
    if not asked.only:
        return cases
    chosen = list(filter(matching(asked.only), cases))
    if not chosen:
        raise UsageError(f"none of {len(cases)} cases is meant by -k {asked.only!r}", "--list shows them all")
    return chosen


def start(asked: Asked, watcher: Watcher | None = None) -> SuiteResult:
    """Run a suite; Ctrl-C ends it with what was found so far.

    Raises:
        UsageError: nothing of it can run.
        EngineUnavailable: no engine answers.
        ClusterUnfit: a cluster was named that somebody uses.
        LabError: no worker could begin; of what happens later, outcomes tell.
    """
    watcher = watcher or Watcher()
    if asked.matrix.image:  # whoever calls named them, not a scenario
        asked = replace(asked, options=replace(asked.options, pull=True))
    name = check_name(asked.name) if asked.name else default_name()
    engine, why = select_engine(asked.engine, name) if isinstance(asked.engine, str) else (asked.engine, "")
    if why:
        watcher.told(0, why)
    place = Place(engine=engine, name=name, asked=asked.shape, announce=lambda text: watcher.told(0, text))
    seed = asked.seed
    if seed is None and (asked.shuffle or asked.repeat > 1):
        seed = int.from_bytes(os.urandom(4), "big") % _SEEDS
    cases, there = _on_what_is_there(asked, place, seed if asked.repeat > 1 or asked.seed is not None else None)
    can_run = [case for case in cases if not case.skipped]
    if not can_run:
        reasons = "; ".join(dict.fromkeys(case.skipped for case in cases))
        raise UsageError(f"none of {len(cases)} cases can run: {reasons}", "--list shows them")
    suite = suite_name()
    if there is not None:
        jobs, names = Jobs(1, f"one after the other on cluster {name}, which is up"), [name]
    else:
        jobs = choose_jobs(asked.jobs, can_run, cores(), free_memory_bytes())
        names = [f"{name[:32]}-{suite[-4:]}-{number}" for number in range(1, jobs.most + 1)]
    known_s = known_durations(asked.options.runs, {case.scenario.name for case in can_run}) if jobs.most > 1 else {}
    places = [replace(place, name=one) for one in names]
    with WorkerPool(places, suite, stays=there is not None) as pool:
        result = _Suite(suite, asked, cases, seed, known_s, pool, watcher).run(jobs.why)
    if any(worker.process.exitcode for worker in pool.workers):  # one was killed, and could not remove its cluster
        with suppress(LabError):
            reap(engine, place.announce)
    return result


def _on_what_is_there(asked: Asked, place: Place, seed: int | None) -> tuple[list[Case], ClusterInfo | None]:
    """The cases, and the cluster that is up, if all of them can run on it one after the other."""
    if asked.jobs in (None, 1):
        try:
            there = place.there()
            if there is not None:
                cases = cases_of(asked, there, seed, place.engine.name)
                for case in cases:
                    if not case.skipped and has_wishes(case.scenario):
                        raise ClusterUnfit(f"{case.id} wants a cluster of another kind than {there.name}")
                    if not case.skipped:
                        size = PlanOptions(nodes=case.nodes, nproc_per_node=case.nproc_per_node)
                        refuse_unfit(there, case.scenario, size)
                return cases, there
        except ClusterUnfit as unfit:
            place.announce(f"using clusters of its own: {unfit.message}")
    return cases_of(asked, None, seed, place.engine.name), None


class _Suite:
    """One suite while it runs."""

    def __init__(
        self,
        suite: str,
        asked: Asked,
        cases: Sequence[Case],
        seed: int | None,
        known_s: Mapping[str, float],
        pool: WorkerPool,
        watcher: Watcher,
    ) -> None:
        self.suite, self.asked, self.cases, self.seed = suite, asked, list(cases), seed
        self.pool, self.watcher, self.pace = pool, watcher, Pace(known_s)
        shuffle = seed if asked.shuffle else None
        self.queue = in_order(cases, jobs=len(pool.workers), shuffle=shuffle, known_s=known_s)
        self.attempts: dict[int, list[Attempt]] = {number: [] for number in self.queue}
        """Of every case that can run, by its number."""
        self.outcomes = {number: Outcome(case=case) for number, case in enumerate(cases) if case.skipped}
        self.failures = 0
        self.used = set[int]()
        """The numbers of workers that had something to do."""
        self.stopped, self.stop_code = "", 0
        self.interrupted = False
        self.deadline = math.inf
        """The monotonic time until which workers are listened to."""

    def run(self, why: str) -> SuiteResult:
        """Run it; `why` says why there are so many clusters."""
        began = time.monotonic()
        self.watcher.begins(why, len(self.cases), len(self.pool.workers))
        for outcome in self.outcomes.values():
            self.watcher.ended(outcome, len(self.outcomes))

        def note_interrupt(*_: object) -> None:  # what is being received is received first, so that no outcome is lost
            self.interrupted = True

        with taking(note_interrupt, callable):
            self._run_all()
        for number, attempts in self.attempts.items():
            if attempts and number not in self.outcomes:  # it was to be tried again
                self._settle(number)
        return SuiteResult(
            suite=self.suite,
            outcomes=tuple(self.outcomes[number] for number in sorted(self.outcomes)),
            planned=len(self.cases),
            clusters=len(self.used),
            duration_s=time.monotonic() - began,
            seed=self.seed,
            stopped=self.stopped if len(self.outcomes) < len(self.cases) else "",
            stop_code=self.stop_code,
        )

    def _run_all(self) -> None:
        """Assign cases, and receive what came of them, until all workers have ended."""
        self._assign()
        while any(not worker.connection.closed for worker in self.pool.workers) and time.monotonic() < self.deadline:
            if self.interrupted and self.deadline == math.inf:
                self.watcher.told(0, "interrupted; removing what was made, which takes a moment")
                self._stop("interrupted", Interrupted.exit_code)
                self.pool.interrupt()
                self.deadline = time.monotonic() + LAST_PATIENCE_S
            for worker, message in self.pool.receive(_POLL_S):
                self._handle(worker, message)
            self._assign()
            self.watcher.tick()
        if self.queue:
            self._stop("every process that ran cases has ended", LabError.exit_code)

    # -- what is next

    def _assign(self) -> None:
        for worker in self.pool.workers:
            if worker.over or worker.case is not None:
                continue
            number = self._next_for(worker)
            if number is not None:
                self._send(worker, number)
            elif worker.cluster is not None or all(one.case is None for one in self.pool.workers):
                worker.dismiss()

    def _next_for(self, idle: Worker) -> int | None:
        """The number of the case that an idle worker should run; None where it has nothing to do now."""
        if idle.cluster is not None:
            number = next_fitting(self.queue, self.cases, idle.cluster)
            if number is not None:
                return number
        working = [(one, self.cases[one.case]) for one in self.pool.workers if one.case is not None]
        running_s = [time.monotonic() - one.since for one, _ in working if one.since]
        for ground in dict.fromkeys(self.cases[number].ground for number in self.queue):
            numbers = [number for number in self.queue if self.cases[number].ground == ground]
            served = sum(case.ground == ground for _, case in working)
            if self.pace.pays([self.cases[number] for number in numbers], running_s, served):
                return numbers[0]
        return None

    def _send(self, worker: Worker, number: int) -> None:
        case = self.cases[number]
        self.queue.remove(number)
        self.used.add(worker.number)
        shape = worker.cluster
        if shape is None or not case.fits(shape):
            shape = cluster_for(self.queue, self.cases, number)
        attempt = len(self.attempts[number]) + 1
        turn = Turn(suite=self.suite, number=number + 1, of=len(self.attempts), case=case.id, attempt=attempt)
        options = replace(self.asked.options, turn=turn, nodes=case.nodes, nproc_per_node=case.nproc_per_node)
        worker.send(Task(case.scenario, replace(options, backend=case.backend), shape), number)

    # -- what is received

    def _handle(self, worker: Worker, message: object) -> None:
        match message:
            case Told(text):
                self.watcher.told(worker.number, text)
            case Making():
                self.watcher.working(worker.number, "makes its cluster", None)
            case Begun(made_s) if worker.case is not None:
                if made_s is not None:
                    self.pace.made(made_s)
                worker.since = time.monotonic()
                self.watcher.working(worker.number, "runs", self.cases[worker.case])
            case Ended() if worker.case is not None:
                number, worker.case = worker.case, None
                self._end(worker, number, message)
            case Refused(text, hint, exit_code):  # neither can the others work
                if not any(outcome.attempts for outcome in self.outcomes.values()):
                    raise (ClusterUnfit if exit_code == ClusterUnfit.exit_code else LabError)(text, hint)
                self._stop(text, exit_code)
            case None:
                self._note_end(worker)

    def _end(self, worker: Worker, number: int, ended: Ended) -> None:
        self.watcher.working(worker.number, "", None)
        result, case = ended.attempt.result, self.cases[number]
        if result.exit_code == Interrupted.exit_code:
            self._stop("interrupted", Interrupted.exit_code)
            return
        if ended.no_cluster:
            worker.cluster = None
        elif not ended.lacking:
            self.pace.took(ended.attempt.took_s)
        if ended.lacking:
            self.cases[number] = replace(case, skipped=result.reason)
            self._settle(number)
            return
        self._attempted(number, ended.attempt, final=ended.no_cluster or ended.last)
        if ended.last:
            worker.over = True
            self._stop(result.reason, result.exit_code)
        elif ended.no_cluster:  # nor would there be one for the others that could share it
            for other in [one for one in self.queue if self.cases[one].ground == case.ground]:
                self.queue.remove(other)
                self._attempted(other, replace(ended.attempt, took_s=0.0), final=True)

    def _attempted(self, number: int, attempt: Attempt, *, final: bool) -> None:
        attempts, most = self.attempts[number], self.asked.most_failures
        attempts.append(attempt)
        if not attempt.result.passed and not final and len(attempts) <= self.asked.retries and not self.stopped:
            self.watcher.again(self.cases[number], len(attempts), self.asked.retries + 1, attempt)
            self.queue.insert(0, number)
            return
        self._settle(number)
        self.failures += not attempt.result.passed
        if most is not None and self.failures >= most:
            self._stop("that many have failed" if self.failures > 1 else "one has failed", 0)

    def _settle(self, number: int) -> None:
        outcome = self.outcomes[number] = Outcome(case=self.cases[number], attempts=tuple(self.attempts[number]))
        self.watcher.ended(outcome, len(self.outcomes))

    def _note_end(self, worker: Worker) -> None:
        """A worker has ended; what it ran, if it did, was broken off."""
        worker.process.join(1.0)
        number, worker.case, worker.cluster = worker.case, None, None
        if number is not None and not self.stop_code:
            reason = f"the process that ran it ended (exit code {worker.process.exitcode})"
            lost = Result(verdict="error", reason=reason, scenario=self.cases[number].scenario.name, exit_code=1)
            hint = "the next `lab` command removes what it left"
            self._attempted(number, Attempt(result=lost, hint=hint), final=True)

    def _stop(self, why: str, code: int) -> None:
        """Nothing begins any more."""
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
    **more: Any,
) -> SuiteResult:
    """Run many scenarios on warm clusters side by side, as `lab test` does; all clusters are removed at its end.

    Args:
        paths: YAML files, folders, scripts, lessons as `"@scatter"`, or `Scenario`s.
        nodes: run each with so many nodes, one after the other.
        nproc_per_node: and with so many workers on each.
        image: and in each of these images.
        watcher: told what happens.
        options: how to run each.
        **more: `jobs`, `retries`, `repeat`, `shuffle`, `seed`, `most_failures`, `only`, `engine`, `name`, `shape`.

    Raises:
        ScenarioError: a scenario is not valid.
        UsageError: nothing of it can run.
        EngineUnavailable: no engine answers.
    """
    scenarios: list[Scenario] = []
    for path in paths:
        scenarios += [path] if isinstance(path, Scenario) else map(open_scenario, find_scenarios([Path(path)]))
    matrix = Matrix(nodes=tuple(nodes), nproc_per_node=tuple(nproc_per_node), image=tuple(image))
    return start(Asked(scenarios=scenarios, matrix=matrix, options=options or RunOptions(), **more), watcher)
