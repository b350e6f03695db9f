"""Runs suites: from what is asked to cases on warm clusters side by side, by worker processes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Jobs,
    Matrix,
    Pace,
    choose_jobs,
    cluster_for,
    cores,
    in_order,
    known_durations,
    make_cases,
    matching,
    next_fitting,
)
from lab.features.suite.outcome import Attempt, Case, Outcome, SuiteResult
from lab.features.suite.view import Nobody, Watcher
from lab.features.suite.worker import (
    LAST_PATIENCE_S,
    Begun,
    Ended,
    Hand,
    Hands,
    Made,
    Making,
    Refused,
    Task,
    Told,
    Word,
)
from lab.plan.cluster import ClusterInfo
from lab.plan.fit import has_wishes, refuse_unfit
from lab.plan.options import PlanOptions
from lab.record.read import Turn
from lab.record.result import Result
from lab.run.options import RunOptions, suite_name
from lab.run.place import Place, reap
from lab.spec.load import find_scenarios, open_scenario
from lab.spec.scenario import Scenario

_LOOK_S = 0.1
_ENDED_BY_ITSELF = "the process that ran it ended ({})"


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a suite is run."""

    jobs: Jobs
    retries: int = 0
    """How often a case that failed is tried again."""
    most_failures: int | None = None
    """Nothing begins any more after so many cases have failed; None: all run."""
    shuffle: bool = False
    """Whether the order is by chance."""
    seed: int | None = None
    """Of that order."""
    known_s: Mapping[str, float] = field(default_factory=dict)
    """What scenarios took earlier, by the name of each."""


def run_cases(
    cases: Sequence[Case],
    conduct: Conduct,
    *,
    engine: Engine,
    name: str,
    asked: Mapping[str, Any],
    options: RunOptions,
    stays: bool = False,
    watcher: Watcher | None = None,
) -> SuiteResult:
    """Run cases; Ctrl-C ends it with what was found so far.

    Args:
        cases: what is run; those that cannot be are skipped.
        conduct: how many at once, how often, in which order.
        engine: where clusters are made.
        name: the cluster that is there, where it is used; else what names of clusters begin with.
        asked: fields of a cluster's shape that were asked for.
        options: how each case is run.
        stays: whether to run on the cluster of that name, which is there; then one after the other.
        watcher: told what happens.

    Raises:
        LabError: no worker could begin; of what happens later, outcomes tell.
    """
    suite = suite_name()
    places = [
        Place(engine=engine, name=one, asked=asked, announce=lambda _: None)
        for one in ([name] if stays else [f"{name[:32]}-{suite[-4:]}-{n}" for n in range(1, conduct.jobs.most + 1)])
    ]
    watcher = watcher or Nobody()
    with Hands(places, suite, stays=stays) as hands:
        found = _Suite(suite, cases, conduct, options, hands, watcher).run()
    if any(hand.process.exitcode for hand in hands.all):  # one was killed, and could not remove its cluster
        with suppress(LabError):
            reap(engine, lambda text: watcher.told(0, text))
    return found


class _Suite:
    def __init__(
        self,
        suite: str,
        cases: Sequence[Case],
        conduct: Conduct,
        options: RunOptions,
        hands: Hands,
        watcher: Watcher,
    ) -> None:
        self.suite = suite
        self.cases = list(cases)
        self.conduct = conduct
        self.options = options
        self.hands = hands
        self.watcher = watcher
        shuffle = conduct.seed if conduct.shuffle else None
        self.queue = in_order(cases, jobs=len(hands.all), shuffle=shuffle, known_s=conduct.known_s)
        self.planned = len(cases)
        self.runs = len(self.queue)
        """How many cases can run, whatever becomes of them."""
        self.attempts: dict[int, list[Attempt]] = {number: [] for number in self.queue}
        self.outcomes = {n: Outcome(case=case) for n, case in enumerate(cases) if case.skipped}
        self.pace = Pace(conduct.known_s)
        self.failures = 0
        self.used: set[int] = set()
        """The numbers of workers that had something to do."""
        self.stopped = ""
        self.stop_code = 0
        self.interrupted = False
        self.deadline = math.inf
        """The monotonic time until which workers are listened to."""

    def run(self) -> SuiteResult:
        began = time.monotonic()
        self.watcher.begins(self.conduct.jobs.why, self.planned, len(self.hands.all))
        for outcome in list(self.outcomes.values()):
            self.watcher.ended(outcome, len(self.outcomes))
        with taking(self._note_interrupt, callable):
            self._go_on()
        for number, attempts in self.attempts.items():
            if attempts and number not in self.outcomes:  # it was to be tried again
                self._settle(number)
        return SuiteResult(
            suite=self.suite,
            outcomes=tuple(self.outcomes[number] for number in sorted(self.outcomes)),
            planned=self.planned,
            clusters=len(self.used),
            duration_s=time.monotonic() - began,
            seed=self.conduct.seed,
            stopped=self.stopped if len(self.outcomes) < self.planned else "",
            stop_code=self.stop_code,
        )

    def _go_on(self) -> None:
        """Give out cases, and listen, until all have ended."""
        self._give_out()
        while any(not hand.connection.closed for hand in self.hands.all) and time.monotonic() < self.deadline:
            if self.interrupted and self.deadline == math.inf:
                self._interrupt()
            for hand, word in self.hands.heard(_LOOK_S):
                self._hear(hand, word)
            self._give_out()
            self.watcher.tick()
        if self.queue:
            self._stop("every process that ran cases has ended", LabError.exit_code)

    def _note_interrupt(self, *_: object) -> None:
        """Ctrl-C: what is being heard is heard first, so that no outcome is lost."""
        self.interrupted = True

    def _interrupt(self) -> None:
        self.watcher.told(0, "interrupted; removing what was made, which takes a moment")
        self._stop("interrupted", Interrupted.exit_code)
        self.hands.interrupt()
        self.deadline = time.monotonic() + LAST_PATIENCE_S

    # -- what is next

    def _give_out(self) -> None:
        for hand in self.hands.all:
            if hand.over or hand.case is not None:
                continue
            number = self._next_for(hand)
            if number is not None:
                self._give(hand, number)
            elif hand.cluster is not None or not self._working():
                hand.dismiss()

    def _working(self) -> list[Hand]:
        return [hand for hand in self.hands.all if hand.case is not None]

    def _next_for(self, hand: Hand) -> int | None:
        """The number of the case that this idle worker should run; None where it has nothing to do now."""
        if hand.cluster is not None:
            number = next_fitting(self.queue, self.cases, hand.cluster)
            if number is not None:
                return number
        now = time.monotonic()
        for ground, numbers in self._by_ground():
            served = [one for one in self._working() if self._serves(one, ground)]
            running_s = [now - one.since for one in self._working() if one.since]
            if self.pace.pays([self.cases[number] for number in numbers], running_s, len(served)):
                return numbers[0]
        return None

    def _serves(self, hand: Hand, ground: str) -> bool:
        return hand.case is not None and self.cases[hand.case].ground == ground

    def _by_ground(self) -> Iterator[tuple[str, list[int]]]:
        grounds: dict[str, list[int]] = {}
        for number in self.queue:
            grounds.setdefault(self.cases[number].ground, []).append(number)
        yield from grounds.items()

    def _give(self, hand: Hand, number: int) -> None:
        case = self.cases[number]
        self.queue.remove(number)
        self.used.add(hand.number)
        fits = hand.cluster is not None and case.fits(hand.cluster)
        shape = hand.cluster if fits and hand.cluster else cluster_for(self.queue, self.cases, number)
        attempt = len(self.attempts[number]) + 1
        turn = Turn(suite=self.suite, number=number + 1, of=self.runs, case=case.id, attempt=attempt)
        options = replace(
            self.options, turn=turn, nodes=case.nodes, nproc_per_node=case.nproc_per_node, backend=case.backend
        )
        hand.give(Task(case.scenario, options, shape), number)

    # -- what is heard

    def _hear(self, hand: Hand, word: Word | None) -> None:
        if isinstance(word, Told):
            self.watcher.told(hand.number, word.text)
        elif isinstance(word, Making):
            self.watcher.working(hand.number, "makes its cluster", None)
        elif isinstance(word, Made):
            self.pace.made(word.took_s)
        elif isinstance(word, Begun) and hand.case is not None:
            hand.since = time.monotonic()
            self.watcher.working(hand.number, "runs", self.cases[hand.case])
        elif isinstance(word, Ended) and hand.case is not None:
            self._end(hand, word)
        elif isinstance(word, Refused):
            self._refused(hand, word)
        elif word is None:
            self._gone(hand)

    def _end(self, hand: Hand, ended: Ended) -> None:
        number, hand.case = hand.case, None
        assert number is not None
        self.watcher.working(hand.number, "", None)
        result = ended.attempt.result
        if result.exit_code == Interrupted.exit_code:
            self._stop("interrupted", Interrupted.exit_code)
            return
        if ended.no_cluster:
            hand.cluster = None
        elif not ended.lacking:
            self.pace.took(ended.attempt.took_s)
        if ended.lacking:
            self.cases[number] = replace(self.cases[number], skipped=result.reason)
            self._settle(number)
            return
        self._attempted(number, ended.attempt, final=ended.no_cluster or ended.last)
        if ended.last:
            hand.over = True
            self._stop(result.reason, result.exit_code)
        elif ended.no_cluster:  # nor would there be one for the others that could share it
            for other in [one for one in self.queue if self.cases[one].ground == self.cases[number].ground]:
                self.queue.remove(other)
                self._attempted(other, replace(ended.attempt, took_s=0.0), final=True)

    def _attempted(self, number: int, attempt: Attempt, *, final: bool) -> None:
        case, attempts = self.cases[number], self.attempts[number]
        attempts.append(attempt)
        if not attempt.result.passed and not final and len(attempts) <= self.conduct.retries and not self.stopped:
            self.watcher.again(case, len(attempts), self.conduct.retries + 1, attempt)
            self.queue.insert(0, number)
            return
        self._settle(number)
        self.failures += not attempt.result.passed
        if self.conduct.most_failures is not None and self.failures >= self.conduct.most_failures:
            self._stop("that many have failed" if self.failures > 1 else "one has failed", 0)

    def _settle(self, number: int) -> None:
        outcome = self.outcomes[number] = Outcome(case=self.cases[number], attempts=tuple(self.attempts[number]))
        self.watcher.ended(outcome, len(self.outcomes))

    def _refused(self, hand: Hand, word: Refused) -> None:
        """A worker cannot work: neither can the others."""
        if not any(outcome.attempts for outcome in self.outcomes.values()):
            kind = ClusterUnfit if word.exit_code == ClusterUnfit.exit_code else LabError
            raise kind(word.message, word.hint)
        self._stop(word.message, word.exit_code)

    def _gone(self, hand: Hand) -> None:
        """A worker has ended; what it ran, if it did, was broken off."""
        hand.process.join(1.0)
        number, hand.case, hand.cluster = hand.case, None, None
        if number is None or self.stop_code:
            return
        how = _ENDED_BY_ITSELF.format(f"exit code {hand.process.exitcode}")
        lost = Result(verdict="error", reason=how, scenario=self.cases[number].scenario.name, exit_code=1)
        self._attempted(number, Attempt(result=lost, hint="the next `lab` command removes what it left"), final=True)

    def _stop(self, why: str, code: int) -> None:
        """Nothing begins any more."""
        self.queue.clear()
        self.stopped = self.stopped or why
        self.stop_code = max(self.stop_code, code)


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
    repeat: int = 1
    shuffle: bool = False
    seed: int | None = None
    """Of the order, and of the first repetition; None: one by chance, where one is needed."""
    most_failures: int | None = None


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
    cases = [_or_skipped(case) for case in cases]
    if asked.only:
        meant = matching(asked.only)
        chosen = [case for case in cases if meant(case)]
        if not chosen:
            raise UsageError(f"none of {len(cases)} cases is meant by -k {asked.only!r}", "--list shows them all")
        return chosen
    return cases


def _or_skipped(case: Case) -> Case:
    """A case, skipped where this machine lacks GPUs for it."""
    if case.skipped or not case.shape.gpus:
        return case
    from lab.engine.doctor import refusal  # few scenarios want any

    return replace(case, skipped=refusal(case.shape.gpus))


def start(asked: Asked, watcher: Watcher | None = None) -> SuiteResult:
    """Run a suite.

    Raises:
        UsageError: nothing of it can run.
        EngineUnavailable: no engine answers.
        ClusterUnfit: a cluster was named that somebody uses.
    """
    watcher = watcher or Nobody()
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
    scripts_seed = seed if asked.repeat > 1 or asked.seed is not None else None
    cases, there = _on_what_is_there(asked, place, scripts_seed, watcher)
    if all(case.skipped for case in cases):
        reasons = dict.fromkeys(case.skipped for case in cases)
        raise UsageError(f"none of {len(cases)} cases can run: {'; '.join(reasons)}", "--list shows them")
    can_run = [case for case in cases if not case.skipped]
    if there is not None:
        jobs = Jobs(1, f"one after the other on cluster {name}, which is up")
    else:
        jobs = choose_jobs(asked.jobs, can_run, cores(), free_memory_bytes())
    known_s = known_durations(asked.options.runs, {case.scenario.name for case in can_run}) if jobs.most > 1 else {}
    conduct = Conduct(
        jobs=jobs,
        retries=asked.retries,
        most_failures=asked.most_failures,
        shuffle=asked.shuffle,
        seed=seed,
        known_s=known_s,
    )
    return run_cases(
        cases,
        conduct,
        engine=engine,
        name=name,
        asked=asked.shape,
        options=asked.options,
        stays=there is not None,
        watcher=watcher,
    )


def _on_what_is_there(
    asked: Asked, place: Place, seed: int | None, watcher: Watcher
) -> tuple[list[Case], ClusterInfo | None]:
    """The cases, and the cluster that is up, if all of them can run on it one after the other."""
    if asked.jobs in (None, 1):
        try:
            there = place.there()
            if there is not None:
                cases = cases_of(asked, there, seed, place.engine.name)
                _refuse_others(cases, there)
                return cases, there
        except ClusterUnfit as unfit:
            watcher.told(0, f"using clusters of its own: {unfit.message}")
    return cases_of(asked, None, seed, place.engine.name), None


def _refuse_others(cases: Iterable[Case], there: ClusterInfo) -> None:
    """Refuse cases that need another cluster."""
    for case in cases:
        if case.skipped:
            continue
        if has_wishes(case.scenario):
            raise ClusterUnfit(f"{case.id} wants a cluster of another kind than {there.name}")
        refuse_unfit(there, case.scenario, PlanOptions(nodes=case.nodes, nproc_per_node=case.nproc_per_node))


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
