"""Run scenarios without and with mutants, on warm clusters that exist only for that, and compare the outcomes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.engine.ownership import default_name
from lab.engine.protocol import Engine
from lab.errors import Interrupted
from lab.features.mutants.candidates import Event, read_events
from lab.features.mutants.on_node.mutant import OBSERVE
from lab.features.suite.pool import WorkerPool, hold_warm_cluster
from lab.frozen import Frozen
from lab.plan.cluster import Shape
from lab.record.read import Record
from lab.record.result import RankResult, Result
from lab.run.cluster_slot import ClusterSlot, WarmCluster
from lab.run.options import RunOptions
from lab.spec.scenario import Scenario
from lab.trace.model import Call, Trace
from lab.trace.read import read_trace

_LEAST_S, _SLOWER = 3.0, 4.0
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
    """What each rank called, with the values that it passed and received; sorted, because threads take turns."""

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
    outcome: Outcome
    again: Outcome
    """The outcome of the second run without a mutant."""
    limit_s: float
    """Time limit of a run with a mutant."""

    def is_equivalent(self, outcome: Outcome, ranks: Iterable[int]) -> bool:
        """Return whether a run in which these ranks do something else cannot be told from one without a mutant."""
        return is_equivalent([self.outcome, self.again], outcome, ranks)


_RUNS_APART = 1_000_000
"""Ranks of a second run are numbered from here, and so on."""


def read_outcome(*results: Result) -> Outcome:
    """Read what can be compared from the results and the records of runs."""
    ranks, calls = dict[int, RankResult](), dict[int, Sequence[str]]()
    for number, result in enumerate(results):
        first = number * _RUNS_APART
        ranks |= {first + rank.rank: rank for rank in result.ranks}
        trace = read_trace(Record(path=result.path)) if result.path is not None else Trace(0, {}, {})
        calls |= {first + rank: sorted(map(_describe_call, one.calls)) for rank, one in trace.ranks.items()}
    return Outcome(
        verdict=" ".join(result.verdict for result in results),
        ends={number: rank.ended for number, rank in ranks.items()},
        logs={number: sorted(rank.log.splitlines()) for number, rank in ranks.items()},
        notes={number: repr(sorted(rank.notes.items())) for number, rank in ranks.items()},
        calls=calls,
    )


def _describe_call(call: Call) -> str:
    arguments = call.op, call.group, call.root, call.peer, call.tag, call.reduce_op, call.splits, call.source
    buffers = call.inputs if call.late else (*call.inputs, *call.outputs)
    return repr((arguments, [(one.dtype, one.shape, one.values, one.summary) for one in buffers]))


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
        attempt = self._cluster.attempt(scenario, self._options, self._pool)
        outcome = attempt.complete()
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
        first, second = read_outcome(result), read_outcome(again)
        events = read_events(Record(path=result.path)) if result.path is not None else []
        warm_s = min(result.duration_s or 0.0, again.duration_s or 0.0)  # the first may import modules
        return Baseline(
            scenario=scenario,
            result=result,
            events=events,
            outcome=first,
            again=second,
            limit_s=max(_LEAST_S, _SLOWER * warm_s),
        )


@contextmanager
def scratch_records() -> Iterator[Path]:
    """Yield a folder for records that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="lab-mutants-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_parallel(
    engine: Engine,
    shape: Shape,
    jobs: int,
    options: RunOptions,
    tasks: Iterable[Callable[[Runner], None]],
    report: Callable[[str], None],
) -> None:
    """Run tasks on several warm clusters at once, each with its own; remove the clusters at the end.

    Args:
        engine: what makes the clusters.
        shape: of each cluster.
        jobs: how many clusters.
        options: of each run.
        tasks: called with a runner; taken one after the other.
        report: called with each line of progress.

    Raises:
        LabError: a cluster cannot be made.
    """
    pool, waiting, name = WorkerPool(), iter(tasks), default_name()[:_LONGEST_NAME]

    def next_task() -> Callable[[Runner], None] | None:
        with pool.turn:
            return None if pool.stopping else next(waiting, None)

    def work(number: int) -> None:
        own_name = f"{name}-mutants-{os.urandom(2).hex()}-{number}"
        slot = ClusterSlot(engine=engine, name=own_name, asked={}, announce=lambda _: None)
        with hold_warm_cluster(slot, shape, "mutants", "runs of mutants") as cluster:
            runner = Runner(cluster, options, pool)
            while (task := next_task()) is not None:
                task(runner)

    pool.run([partial(work, number) for number in range(jobs)], interrupted=lambda: report("interrupted: stopping"))
