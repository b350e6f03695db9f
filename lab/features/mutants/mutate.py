"""`lab mutate`: whether the checks of a script, a scenario, or tests notice if a rank does something else.

  lab mutate train.yaml                        a scenario, with what it expects
  lab mutate train.py --mutants 200            a script: its exit code, and whether it ends
  lab mutate --budget 5m -- pytest tests/      tests that start ranks, in any way
  lab mutate train.yaml --kinds skip,dtype     only these changes

A mutant changes one thing that one rank does, without a change of the files. `lab help mutants` says more.

exit codes: 0, or 1 with --at-least and a lower score; 2 refused, or it does not pass without a mutant.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from xml.etree.ElementTree import ParseError, parse

from lab.cli import arguments as shared
from lab.engine.ownership import default_name
from lab.engine.protocol import Engine
from lab.errors import Interrupted, LabError, UsageError
from lab.features.html.write import fill_template
from lab.features.mutants.candidates import Candidates, Event, is_mutated, read_events
from lab.features.mutants.on_node.mutant import BEHAVIORS, KINDS, OBSERVE, VARIABLE, Mutant
from lab.features.recording.session import KEEP_VARIABLE
from lab.features.suite.pool import WorkerPool, hold_warm_cluster
from lab.features.training.trace_lines import turns_of, turns_of_modules
from lab.frozen import Frozen
from lab.plan.cluster import Shape
from lab.record.read import Record, list_records
from lab.record.result import Expectation, RankResult, Result
from lab.report.sanitize import sanitize_plain
from lab.report.style import Style
from lab.run.cluster_slot import ClusterSlot, WarmCluster
from lab.run.options import Job, RunOptions
from lab.spec.scenario import Scenario
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.read import read_trace
from lab.words import clip_end, format_count, format_duration, format_ordinal, name_ranks

_LEAST_RUN_S, _SLOWER_RUN = 3.0, 4.0
"""Time limit of a run with a mutant: at least this, or this many times the time without one."""
_LONGEST_NAME = 25


class Outcome(Frozen):
    """What a run did, as far as it can be compared with another run."""

    verdict: str
    ends: Mapping[int, str]
    """How each rank ended."""
    logs: Mapping[int, Sequence[str]]
    """Sorted lines of each rank's output."""
    notes: Mapping[int, str]
    calls: Mapping[int, Sequence[str]]
    """What each rank called, with the values that it passed and received, and its parameters after each optimizer step;
    sorted, because threads take turns."""

    def differences(self, other: Outcome) -> set[tuple[str, int]]:
        """Return in which fields, for which ranks, two runs differ."""
        fields = ("ends", "logs", "notes", "calls")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in fields]
        return {(name, rank) for name, a, b in pairs for rank in {*a, *b} if a.get(rank) != b.get(rank)} | (
            {("verdict", -1)} if self.verdict != other.verdict else set()
        )


def is_equivalent(plain: Sequence[Outcome], outcome: Outcome, ranks: Iterable[int]) -> bool:
    """Return whether a run cannot be told from two runs without a mutant; False if those differ in what would show it.

    Args:
        plain: the two runs without a mutant.
        outcome: the run with one.
        ranks: what it changes.
    """
    differences, varies = plain[0].differences(outcome), plain[0].differences(plain[1])
    return differences <= varies and not any(("calls", rank) in differences for rank in ranks)


class Baseline(Frozen):
    """A scenario without a mutant."""

    scenario: Scenario
    result: Result
    events: Sequence[Event]
    outcomes: list[Outcome]
    """Of its two runs."""
    limit_s: float
    """Time limit of a run with a mutant."""


_RUNS_APART = 1_000_000
"""Ranks of a second run are numbered from here, and so on."""


def read_outcome(*results: Result) -> Outcome:
    """Read what can be compared from the results and the records of runs."""
    ranks, calls = dict[int, RankResult](), dict[int, Sequence[str]]()
    for number, result in enumerate(results):
        first = number * _RUNS_APART
        ranks |= {first + rank.rank: rank for rank in result.ranks}
        trace = read_trace(Record(path=result.path)) if result.path is not None else Trace(0, {}, {})
        calls |= {
            first + rank: sorted([*map(_describe_call, one.calls), *_describe_steps(one)])
            for rank, one in trace.ranks.items()
        }
    ends = {number: rank.ended for number, rank in ranks.items()}
    logs = {number: sorted(rank.log.splitlines()) for number, rank in ranks.items()}
    notes = {number: repr(sorted(rank.notes.items())) for number, rank in ranks.items()}
    verdict = " ".join(result.verdict for result in results)
    return Outcome(verdict=verdict, ends=ends, logs=logs, notes=notes, calls=calls)


def _describe_call(call: Call) -> str:
    arguments = call.op, call.group, call.root, call.peer, call.tag, call.reduce_op, call.splits, call.source
    buffers = call.inputs if call.late else (*call.inputs, *call.outputs)
    return repr((arguments, [(one.dtype, one.shape, one.values, one.summary) for one in buffers]))


def _describe_steps(rank: RankTrace) -> Iterator[str]:
    for turns in (turns_of(rank), turns_of_modules(rank)):
        yield from (repr((number, turn.source, turn.settings, turn.norms)) for number, turn in turns.items())


def with_mutant(scenario: Scenario, text: str, timeout_s: float | None = None) -> Scenario:
    """Return the scenario with a mutant, or one that observes."""
    limit_s = scenario.timeout_s if timeout_s is None else timeout_s
    return replace(scenario, extra={**scenario.extra, "mutant": text}, timeout_s=limit_s)


class Runner:
    """Runs scenarios on one warm cluster."""

    def __init__(self, cluster: WarmCluster, options: RunOptions, pool: WorkerPool) -> None:
        self._cluster, self._options, self._pool = cluster, options, pool

    def run(self, scenario: Scenario) -> Result:
        """Run a scenario.

        Raises:
            KeyboardInterrupt: The user interrupted it.
            LabError: It could not run.
        """
        outcome = self._cluster.attempt(scenario, self._options, self._pool).complete()
        if outcome.exit_code == Interrupted.exit_code:
            raise KeyboardInterrupt
        return outcome

    def find_baseline(self, scenario: Scenario) -> Baseline:
        """Run a scenario twice without a mutant, and read what mutants could change.

        Raises:
            LabError: it could not run.
        """
        watched = with_mutant(scenario, OBSERVE)
        result, again = self.run(watched), self.run(watched)
        events = read_events(Record(path=result.path)) if result.path is not None else []
        warm_s = min(result.duration_s or 0.0, again.duration_s or 0.0)  # the first may import modules
        outcomes, limit_s = [read_outcome(result), read_outcome(again)], max(_LEAST_RUN_S, _SLOWER_RUN * warm_s)
        return Baseline(scenario=scenario, result=result, events=events, outcomes=outcomes, limit_s=limit_s)


@contextmanager
def scratch_records() -> Iterator[Path]:
    """Yield a folder for records that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lab-mutants-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def run_parallel(
    engine: Engine,
    shape: Shape,
    jobs: int,
    options: RunOptions,
    tasks: Iterable[Callable[[Runner], None]],
    report: Callable[[str], None],
    outer: WorkerPool | None = None,
) -> bool:
    """Run tasks on several warm clusters at once, each with its own; remove the clusters at the end.

    Args:
        engine: what makes the clusters.
        shape: of each cluster.
        jobs: how many clusters.
        options: of each run.
        tasks: called with a runner; taken one after the other.
        report: called with each line of progress.
        outer: the pool whose worker calls this; it interrupts the tasks.

    Returns:
        False if they were interrupted.

    Raises:
        LabError: a cluster cannot be made.
    """
    pool, waiting, name = WorkerPool(), iter(tasks), default_name()[:_LONGEST_NAME]
    observer = outer or pool

    def next_task() -> Callable[[Runner], None] | None:
        with pool.turn:
            return None if pool.stopping or observer.stopping else next(waiting, None)

    def work(number: int) -> None:
        own_name = f"{name}-mutants-{os.urandom(2).hex()}-{number}"
        slot = ClusterSlot(engine=engine, name=own_name, asked={}, announce=lambda _: None)
        with hold_warm_cluster(slot, shape, "mutants", "runs of mutants") as cluster:
            runner = Runner(cluster, options, observer)
            while (task := next_task()) is not None:
                task(runner)

    pool.run([partial(work, number) for number in range(jobs)], interrupted=lambda: report("interrupted: stopping"))
    return not observer.stopping


DRAWN = 100
"""Default number of mutants."""
QUIET = tuple(kind for kind in KINDS if kind not in (*BEHAVIORS, "world", "address"))
"""Kinds that are drawn by default: what ends or holds up a rank is noticed by any test that waits for it."""
_EXPECTED = 20
"""Mutants of the expectation `mutants`."""
_JOBS = 4
"""Runs at once: a run that hangs only waits."""
_TESTS_AT_ONCE = 2
_ATTEMPTS = 30
_LEAST_S, _SLOWER = 20.0, 5.0
"""Time limit of tests with a mutant: at least this, or this many times the time without one."""
_LEAST_STALL_S = 5.0
_STALLS = ((_TESTS_AT_ONCE, 0.25), (1, 2.0))
"""Tests with a mutant that make no progress for this long are ended; or for a part of the time that they take without
one. The first pair of runs at once and this part is used with which they pass: runs may need the same port."""
_LONGEST_REASON = 200


class Tried(Frozen):
    """A mutant that was tried."""

    mutant: Mutant
    at: str
    """The line of what it changes."""
    fate: str
    """`caught`, `survived`, or `equivalent`."""
    how: str = ""
    """What noticed it."""

    @property
    def does(self) -> str:
        """`rank 1 skips its 2nd all_reduce at metrics.py:40`."""
        return describe_mutant(self.mutant, self.at)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        facts = {"mutant": self.mutant.text, "kind": self.mutant.kind, "ranks": [*self.mutant.ranks], "line": self.at}
        return {**facts, "does": self.does, "fate": self.fate, "how": self.how}


class Report(Frozen):
    """The outcome of `lab mutate`."""

    name: str
    seed: int
    asked: int
    tried: tuple[Tried, ...]
    seconds: float
    command: str
    """Reproduces a mutant, in place of `{}`."""

    def with_fate(self, fate: str) -> list[Tried]:
        """Return the mutants of a fate."""
        return [one for one in self.tried if one.fate == fate]

    @property
    def score(self) -> float | None:
        """Percentage of mutants that were caught, without equivalent ones; None: there are none."""
        caught, survived = len(self.with_fate("caught")), len(self.with_fate("survived"))
        return 100 * caught / (caught + survived) if caught + survived else None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        counts = Counter(one.fate for one in self.tried)
        facts = {"name": self.name, "seed": self.seed, "score": self.score, "seconds": round(self.seconds, 3)}
        fates = {fate: counts[fate] for fate in ("caught", "survived", "equivalent")}
        return {**facts, **fates, "asked": self.asked, "mutants": [one.to_json() for one in self.tried]}


def describe_mutant(mutant: Mutant, at: str) -> str:
    """Describe in a clause what ranks do differently."""
    who = name_ranks(mutant.ranks) if mutant.ranks else "each rank"
    which = f"the {mutant.target}" if mutant.nth == 0 else f"its {format_ordinal(mutant.nth)} {mutant.target}"
    return f"{who} {KINDS[mutant.kind].does.format(f'{which} at {at}', to=mutant.to)}"


class _Trials:
    """The mutants of a subject, in the order of the draw."""

    def __init__(self, count: int, seed: int, kinds: Sequence[str], until: float, report: Callable[[str], None]):
        self._count, self._seed, self._kinds, self._until, self._report = count, seed, kinds, until, report
        self._random, self._began = Random(seed), time.monotonic()
        self._drawn: list[tuple[Mutant, Event]] = []
        self._outcomes: list[Outcome] = []
        self._ready, self._lock, self._next = threading.Event(), threading.Lock(), 0
        self._tried: dict[int, Tried] = {}
        self._failure: LabError | None = None
        self._stopped = False

    def stop(self) -> None:
        """Try no more mutants, and forget those that are being tried."""
        self._stopped = True

    def work(self, subject: ScenarioSubject | TestsSubject, *, first: bool) -> None:
        """Observe, if this is the first worker, then try mutants until there are none left."""
        if first:
            self._report("running without a mutant, to see what mutants can change")
            try:
                self._draw(subject)
            except LabError as error:
                self._failure = error
            finally:
                self._ready.set()
        self._ready.wait()
        if not first and not (self._drawn and subject.warm_up()):
            return
        while (number := self._claim_next()) is not None:
            mutant, event = self._drawn[number]
            noticed, outcome = subject.attempt(mutant)
            if self._stopped:
                return
            if outcome is None:
                self._report(f"not tried: the tests failed before {mutant.text}: {noticed}")
                continue
            is_same = not noticed and is_equivalent(self._outcomes, outcome, mutant.ranks)
            fate = "caught" if noticed else "equivalent" if is_same else "survived"
            self._tried[number] = Tried(mutant=mutant, at=event.at, fate=fate, how=clip_end(noticed, _LONGEST_REASON))
            self._report(f"[{len(self._tried)}/{len(self._drawn)}] {fate}: {self._tried[number].does}")

    def report(self, name: str, command: str) -> Report:
        """Return what became of the mutants.

        Raises:
            LabError: the subject does not pass without a mutant.
        """
        if self._failure is not None:
            raise self._failure
        tried, seconds = tuple(one for _, one in sorted(self._tried.items())), time.monotonic() - self._began
        return Report(name=name, command=command, seed=self._seed, asked=self._count, tried=tried, seconds=seconds)

    def _claim_next(self) -> int | None:
        with self._lock:
            if self._stopped or self._next >= len(self._drawn) or time.monotonic() > self._until:
                return None
            self._next += 1
            return self._next - 1

    def _draw(self, subject: ScenarioSubject | TestsSubject) -> None:
        try:
            events, self._outcomes = subject.observe()
            candidates, known = Candidates(events, self._kinds), set[str]()
            for _ in range(self._count * _ATTEMPTS):
                if (drawn := candidates.draw(self._random)) is None or len(self._drawn) == self._count:
                    break
                mutant = subject.adapt(*drawn)
                if mutant.text not in known:
                    known.add(mutant.text)
                    self._drawn.append((mutant, drawn[1]))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            why = f"the recorded calls are damaged ({type(error).__name__}: {error})"
            raise UsageError(why, "mutate a program that leaves its trace alone") from error


class ScenarioSubject:
    """A scenario on a warm cluster.

    Args:
        scenario: what to run.
        limits: gets its time limit, once it is known; clusters share it.
        runner: of the cluster.
    """

    def __init__(self, scenario: Scenario, limits: list[float], runner: Runner) -> None:
        self._scenario, self._limits, self._runner = scenario, limits, runner

    def observe(self) -> tuple[Sequence[Event], list[Outcome]]:
        """Run it twice without a mutant; return what mutants could change, and both outcomes.

        Raises:
            LabError: it does not pass.
        """
        baseline = self._runner.find_baseline(self._scenario)
        if not baseline.result.passed:
            raise _does_not_pass(self._scenario.name, baseline.result.reason)
        self._limits.append(baseline.limit_s)
        return baseline.events, baseline.outcomes

    def warm_up(self) -> bool:
        """Import what it needs, so that the first run with a mutant is as fast as the others; return True."""
        self._runner.run(self._scenario)
        return True

    def attempt(self, mutant: Mutant) -> tuple[str, Outcome]:
        """Run it with a mutant; return what noticed the mutant, empty if nothing did, and the outcome."""
        result = self._runner.run(with_mutant(self._scenario, mutant.text, self._limits[0]))
        return _why_not_passed(result), read_outcome(result)

    def adapt(self, mutant: Mutant, event: Event) -> Mutant:
        """Return the mutant as it is to be tried."""
        return mutant


def _why_not_passed(result: Result) -> str:
    if result.passed:
        return ""
    unmet = [one.sentence() for one in result.unmet]
    return unmet[0] if unmet and result.verdict not in ("hung", "timeout") else f"{result.verdict}: {result.reason}"


def _does_not_pass(name: str, reason: str) -> LabError:
    return UsageError(f"{name} does not pass without a mutant: {reason}", "fix it first")


class TestsSubject:
    """Tests of pytest, whose ranks the lab records."""

    def __init__(self, words: Sequence[str], folder: Path, jobs: int) -> None:
        if not words or Path(words[0]).name != "pytest":
            raise UsageError(f"found {shlex.join(words)!r} after --; allowed: pytest and its arguments")
        self.name = shlex.join(words)
        engine = [] if any(word.startswith("--lab-engine") for word in words) else ["--lab-engine=local"]
        self._words = [sys.executable, "-m", "pytest", *words[1:], *engine, "--lab", "-p", "no:cacheprovider"]
        self._folder, self._limit_s, self._stall_s, self._number = folder, 3600.0, 0.0, 0
        self._at_once, self._running = jobs, set[subprocess.Popen[bytes]]()
        self._lock = threading.Lock()
        self.command = f"{VARIABLE}={{}} pytest {shlex.join([*words[1:], *engine])} --lab"

    def observe(self) -> tuple[Sequence[Event], list[Outcome]]:
        """See `ScenarioSubject`."""
        began, jobs = time.monotonic(), self._at_once
        reason, first, records = self._run(OBSERVE)
        each_s, again = time.monotonic() - began, list[tuple[str, Outcome, list[Record]]]()
        self._limit_s = max(_LEAST_S, _SLOWER * each_s)
        for at_once, part in () if reason else _STALLS:
            self._at_once, self._stall_s = min(at_once, jobs), max(_LEAST_STALL_S, part * each_s)
            with ThreadPoolExecutor() as pool:
                again = [*pool.map(lambda _: self._observe_again(), range(self._at_once))]
            if not (reason := next((failed for failed, *_ in again if failed), "")):
                break
        if reason:
            raise _does_not_pass(self.name, reason)
        events = [event for record in records for event in read_events(record)]
        if not events:
            if any(record.result().engine not in ("?", "local") for record in records):
                raise UsageError(f"{self.name}: mutants of tests need the local engine", "use --lab-engine local")
            raise UsageError(f"{self.name} starts no ranks that the lab can record", "lab help recording")
        return events, [first, again[0][1]]

    def _observe_again(self) -> tuple[str, Outcome, list[Record]]:
        run = self._run(OBSERVE, self._stall)
        if run[0]:
            self.stop()  # the other run can hang at the same port
        return run

    @property
    def _stall(self) -> str:
        return f"--lab-stall={self._stall_s:.0f}s"

    def warm_up(self) -> bool:
        """Return whether more than one run at once passes; each run of pytest is a new process."""
        return self._at_once > 1

    def attempt(self, mutant: Mutant) -> tuple[str, Outcome | None]:
        """See `ScenarioSubject`; the outcome is None if the tests failed before anything changed."""
        reason, outcome, records = self._run(mutant.text, "-x", self._stall)
        verdicts, traces = outcome.verdict.split(), map(read_trace, records)
        calls = (call for trace in traces for rank in trace.ranks.values() for call in rank.calls)
        at_work = "timeout" in verdicts or ("hung" in verdicts and all(call.end is not None for call in calls))
        if reason and (at_work or not any(map(is_mutated, records))):
            # ranks still worked when the lab ended their test, or something else failed: this shows nothing
            reason, outcome, records = self._run(mutant.text, "-x", f"--lab-stall={self._limit_s:.0f}s")
        return reason, outcome if not reason or any(map(is_mutated, records)) else None

    def stop(self) -> None:
        """End the running tests."""
        for tests in [*self._running]:
            with suppress(ProcessLookupError):
                os.killpg(tests.pid, signal.SIGTERM)

    def adapt(self, mutant: Mutant, event: Event) -> Mutant:
        """Change each call at the line: several tests may make it."""
        return mutant._replace(at=event.at, nth=0 if event.is_call else 1)

    def _run(self, text: str, *options: str) -> tuple[str, Outcome, list[Record]]:
        """Run the tests; return the first failure, empty without one, what the ranks did, and the records."""
        with self._lock:
            self._number += 1
            folder = self._folder / str(self._number)
        runs = folder / "runs"
        runs.mkdir(parents=True)
        junit = folder / "junit.xml"
        words = [*self._words, *options, f"--lab-report={runs}", f"--junitxml={junit}"]
        reason = ""
        with open(folder / "output", "wb") as output:
            env = {**os.environ, VARIABLE: text, KEEP_VARIABLE: "1"}
            tests = subprocess.Popen(words, env=env, stdout=output, stderr=output, start_new_session=True)
            self._running.add(tests)
            try:
                code = tests.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                code, reason = -1, f"the tests did not end within {format_duration(self._limit_s)}"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(tests.pid, signal.SIGTERM if tests.poll() is None else signal.SIGKILL)
                tests.wait()
                self._running.discard(tests)
        records = sorted(list_records(runs), key=lambda record: record.path.name)
        if code and not reason:
            reason = _first_failure(junit) or clip_end(_last_line(folder / "output"), _LONGEST_REASON)
        return reason, read_outcome(*(record.result() for record in records)), records


def _first_failure(junit: Path) -> str:
    with suppress(OSError, ParseError):
        for case in parse(junit).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                return f"{case.get('classname')}::{case.get('name')} failed"
    return ""


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((sanitize_plain(line) for line in reversed(lines) if line.strip()), "pytest failed")


def try_scenario(
    scenario: Scenario, count: int, seed: int, kinds: Sequence[str] = QUIET, engine: str = "auto",
    until: float = float("inf"), jobs: int = _JOBS, report: Callable[[str], None] = lambda _: None,
    of: Job | None = None,
) -> Report:  # fmt: skip
    """Try mutants of a scenario on warm clusters.

    Args:
        scenario: what is changed.
        count: how many mutants.
        seed: decides which.
        kinds: of these kinds.
        engine: where.
        until: start none after this time of `time.monotonic`.
        jobs: how many clusters.
        report: called with each line of progress.
        of: a run that judges itself by this: clusters and options are like its own.

    Raises:
        KeyboardInterrupt: the user interrupted such a run.
        LabError: it does not pass without a mutant, or no engine answers.
    """
    from lab.engine.select import select_engine
    from lab.plan.plan import shape_for

    trials, limits = _Trials(count, seed, kinds, until, report), list[float]()

    def work(first: bool, runner: Runner) -> None:
        trials.work(ScenarioSubject(scenario, limits, runner), first=first)

    selected, why = (of.engine, "") if of is not None else select_engine(engine, "mutants")
    if why:
        report(why)
    with scratch_records() as folder:
        options, outer, shape = RunOptions(runs=folder), None, shape_for(scenario, RunOptions(), {})
        if of is not None:
            options, outer = of.options_again(folder), of.observer if isinstance(of.observer, WorkerPool) else None
            shape = replace(of.cluster.shape, nodes=shape.nodes, nproc_per_node=shape.nproc_per_node)
        tasks = [partial(work, number == 0) for number in range(jobs)]
        if not run_parallel(selected, shape, jobs, options, tasks, report, outer) and of is not None:
            raise KeyboardInterrupt
    program = shlex.quote(os.path.relpath(scenario.source or scenario.script))
    return trials.report(scenario.name, f"lab run {program} --mutant {{}}")


def _try_tests(
    words: Sequence[str], count: int, seed: int, kinds: Sequence[str], until: float, jobs: int,
    report: Callable[[str], None],
) -> Report:  # fmt: skip
    with scratch_records() as folder:
        subject, trials = TestsSubject(words, folder, jobs), _Trials(count, seed, kinds, until, report)
        works = [partial(trials.work, subject, first=number == 0) for number in range(jobs)]

        def interrupt() -> None:
            report("interrupted: stopping")
            trials.stop()
            subject.stop()

        WorkerPool().run(works, interrupted=interrupt)
    return trials.report(subject.name, subject.command)


def judge_mutants(wanted: float, job: Job, *_: Any) -> Callable[[bool], list[Expectation]]:
    """Return a function that says whether a run's other expectations notice mutants, given whether they are met."""
    return partial(_check_mutants, wanted, job)


def _check_mutants(wanted: float, job: Job, fine: bool) -> list[Expectation]:
    plan, expect, survivors = job.plan, job.plan.scenario.expect, list[Tried]()
    others = {name: value for name, value in expect.extra.items() if name != "mutants"}
    scenario = replace(plan.scenario, nodes=plan.nnodes, nproc_per_node=plan.nproc_per_node)
    scenario = replace(scenario, expect=replace(expect, extra=others))
    jobs = 1 if job.cluster.shape.strict else _JOBS  # more would exceed the limits that a strict cluster has
    met, got = False, "(without a mutant, the run is not as expected)"
    if fine:
        try:
            report = try_scenario(scenario, _EXPECTED, 0, QUIET, jobs=jobs, of=job)
        except LabError as error:
            got = f"({error.message})"
        else:
            met = report.score is not None and report.score >= wanted
            got = "(no mutant changes what it does)" if report.score is None else f"{report.score:.0f} %"
            survivors = [] if met else report.with_fate("survived")
    score = Expectation(what="mutants", expected=f"at least {wanted:g} % caught", got=got, met=met)
    missed = [f"none fails if {one.does}" for one in survivors]
    return [score, *(Expectation(what="mutants", expected="a check that fails", got=one) for one in missed)]


# -- the verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "lab mutate SCRIPT | SCENARIO | -- pytest ARGUMENTS [options]"
    about = "a script, a scenario, or a lesson as @NAME; or nothing, and pytest after --"
    shared.add_options(parser, "program", type=Path, nargs="?", help=about, complete="scenarios")
    about = f"try N mutants (default: {DRAWN})"
    parser.add_argument("--mutants", type=shared.positive, default=DRAWN, metavar="N", help=about)
    about = "draw them from this seed (default: 0)"
    parser.add_argument("--seed", type=shared.whole, default=0, metavar="N", help=about)
    parser.add_argument(
        "--budget", type=shared.duration, metavar="TIME", help="start no more mutants after this time, as 5m"
    )
    about = "draw only these kinds (default: all that do not end or hold up a rank)"
    parser.add_argument("--kinds", type=_kinds, default=QUIET, metavar="KINDS", help=about)
    about = "exit with 1 if fewer percent are caught"
    parser.add_argument("--at-least", type=float, metavar="PERCENT", help=about)
    parser.add_argument("-j", "--jobs", type=shared.positive, metavar="N", help=f"runs at once (default: {_JOBS})")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML: each mutant is a test")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page")
    shared.add_options(parser, "--engine", "--json", "--quiet")
    parser.set_defaults(rest=[])


@shared.convert_word
def _kinds(text: str) -> tuple[str, ...]:
    for word in text.split(","):
        if word not in KINDS:
            raise ValueError(f"found the kind {word!r}; allowed: {', '.join(KINDS)}")
    return tuple(text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Try mutants; return 1 if fewer are caught than `--at-least` asks for."""
    if bool(arguments.program) == bool(arguments.rest):
        raise UsageError("lab mutate tries a program, or pytest after --", "lab mutate train.yaml")
    count, seed, kinds, jobs = arguments.mutants, arguments.seed, arguments.kinds, arguments.jobs
    until = time.monotonic() + (arguments.budget or float("inf"))
    with shared.Progress(quiet=arguments.quiet or arguments.json) as display:
        if arguments.rest:
            report = _try_tests(arguments.rest, count, seed, kinds, until, jobs or _TESTS_AT_ONCE, display.line)
        else:
            scenario = shared.named_scenarios([arguments.program], [], {})[0]
            report = try_scenario(scenario, count, seed, kinds, arguments.engine, until, jobs or _JOBS, display.line)
    if not report.tried and time.monotonic() > until:
        spent = f"the runs without a mutant took the whole budget of {format_duration(arguments.budget)}"
        raise LabError(f"{report.name}: {spent}: no mutant was tried", "a larger --budget")
    for path, render in ((arguments.junit, junit_xml), (arguments.html, html_page)):
        if path is not None:
            shared.write_text(path, render(report))
    shared.print_answer(arguments, report.to_json, lambda style: report_text(report, style))
    return int(arguments.at_least is not None and (report.score or 0.0) < arguments.at_least)


def summary_line(report: Report) -> str:
    """Count the fates of the mutants."""
    caught, survived = len(report.with_fate("caught")), report.with_fate("survived")
    score = "nothing to catch" if report.score is None else f"score {report.score:.0f} %"
    counts = f"{caught} caught, {len(survived)} survived, {len(report.with_fate('equivalent'))} change nothing"
    tried = format_count(len(report.tried), "mutant")
    tried = f"{len(report.tried)} of {report.asked} mutants" if len(report.tried) < report.asked else tried
    return f"{report.name}: {score}: of {tried}, {counts}, in {format_duration(report.seconds)}"


def report_text(report: Report, style: Style) -> str:
    """Return the score, and each survivor as a sentence with the command that reproduces it."""
    lines = [style.paint(summary_line(report), "bold")]
    for one in report.with_fate("survived"):
        command = report.command.replace("{}", shlex.quote(one.mutant.text))
        lines += [f"  if {one.does}, no check fails", f"    {command}"]
    return "\n".join(lines)


def junit_xml(report: Report) -> str:
    """Return JUnit XML in which each mutant is a test: a survivor fails, an equivalent one is skipped."""
    counts = Counter(one.fate for one in report.tried)
    return fill_template("mutants.xml", {"plain": sanitize_plain}, report=report, counts=counts)


def html_page(report: Report) -> str:
    """Return a page: the score, then all mutants, survivors first."""
    return fill_template("mutants.html", {}, report=report, summary=summary_line(report))
