"""Draw schedules of faults from the record of a run, and try them until one breaks something; then shrink it.

A schedule consists of faults, their targets, and their moments. Only moments from the record are drawn. Trials run on
one warm cluster that exists only for them; the result is written as a scenario.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, count, islice, takewhile
from pathlib import Path
from random import Random
from typing import Any

from lab.cli import arguments as shared
from lab.cli.cmd_run import read_arguments
from lab.cluster import Cluster
from lab.errors import EngineUnavailable, Interrupted, LabError, UsageError
from lab.features.faults.fault import PHASES, Fault, When, broken_in, fault_data, fault_sentence, with_faults
from lab.features.faults.kinds import Chance, FaultKind, Harm, fault_kinds, key_of
from lab.features.suite.pool import hold_warm_cluster
from lab.frozen import Frozen
from lab.node.messages.agent import Note
from lab.operations import OPERATIONS
from lab.plan.plan import shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.report.style import Style, style_for
from lab.report.verdict import counts_text, ended_line
from lab.run.cluster_slot import WarmCluster, refuse_foreign_wishes
from lab.run.collect import Observer
from lab.run.options import RunOptions
from lab.spec.launching import LAB
from lab.spec.load import dump_scenario
from lab.spec.reading import did_you_mean
from lab.spec.scenario import Scenario
from lab.trace.model import RankTrace
from lab.trace.read import read_trace
from lab.words import clip_end, format_count, format_duration


def moments_of(record: Record) -> list[When]:
    """Return each exact moment of each rank: those of rank 0 in order, then those of rank 1, and so on."""
    of_calls = (_of_calls(rank, trace) for rank, trace in sorted(read_trace(record).ranks.items()))
    return [*chain.from_iterable(of_calls), *_of_notes(record)]


def first_occurrence(moment: When) -> When:
    """Return the first moment of this kind: the same call, phase, or note of that rank, the first time."""
    return replace(moment, count=1) if moment.note is None else replace(moment, equals=None)


def _of_calls(rank: int, trace: RankTrace) -> list[When]:
    calls = [(call.begin, call.end, call.op, None) for call in trace.calls if call.op in OPERATIONS]
    phases = [(span.begin, span.end, None, span.name) for span in trace.phases if span.name in PHASES]
    times, moments = Counter[str | None](), list[tuple[float, When]]()
    for begin, end, op, phase in sorted([*calls, *phases], key=lambda one: one[0]):
        times[op or phase] += 1
        before = When(rank=rank, op=op, phase=phase, count=times[op or phase])
        moments.append((begin, before))
        if end is not None:
            moments.append((end, replace(before, edge="after")))
    return [moment for _, moment in sorted(moments, key=lambda one: one[0])]


def _of_notes(record: Record) -> Iterator[When]:
    notes = [event for event in record.events() if isinstance(event, Note) and event.rank >= 0]
    times = Counter((note.rank, note.name) for note in notes)
    reported = set[tuple[int, str, str]]()
    for note in sorted(notes, key=lambda one: one.rank):
        key = (note.rank, note.name, repr(note.value))
        if times[note.rank, note.name] == 1:
            yield When(rank=note.rank, note=note.name)
        elif isinstance(note.value, (int, float, str)) and key not in reported:
            reported.add(key)
            yield When(rank=note.rank, note=note.name, equals=note.value)


Schedule = tuple[Fault, ...]
DURATIONS_S = (0.2, 0.5, 1.0)
"""Durations of faults that only slow a run: long for a call, short for any timeout."""
_ATTEMPTS = 50


class Pool(Chance):
    """The faults and moments that schedules are drawn from."""

    kinds: Sequence[type[FaultKind]]
    moments: Sequence[When]
    most: int = 3
    """Most faults in a schedule."""

    def draw(self, tried: set[str]) -> Schedule | None:
        """Draw a schedule that was not tried; None if none can be drawn. Half of all schedules have one fault."""
        for _ in range(_ATTEMPTS):
            count = next((number for number in range(1, self.most) if self.random.random() < 0.5), self.most)
            drawn = {schedule_key(fault): fault for fault in (self._fault() for _ in range(count)) if fault is not None}
            schedule = tuple(drawn[text] for text in sorted(drawn))
            if schedule and schedule_key(*schedule) not in tried:
                tried.add(schedule_key(*schedule))
                return schedule
        return None

    def _fault(self) -> Fault | None:
        """Draw a fault and a moment; None if they do not fit."""
        what = self.one_of(self.kinds).drawn(self)
        fitting = [one for one in self.moments if what is None or not what.by_worker or one.rank in what.ranks]
        if what is None or not fitting:
            return None
        moment, lasts = self.one_of(fitting), what.harm == "slows" or what.passes
        for_s = self.one_of(DURATIONS_S) if lasts else None
        with suppress(UsageError):
            return Fault(what=what, when=moment, for_s=for_s)
        return None


def schedule_key(*faults: Fault) -> str:
    """Return the faults on a line, as a file would write them; equal lines mean equal schedules."""
    return json.dumps([fault_data(fault) for fault in faults])


def kinds_drawn(
    engine: str, nodes: Sequence[str], ranks: Sequence[int], named: Sequence[str] = ()
) -> list[type[FaultKind]]:
    """Return the kinds to draw from on this engine: the named ones, or all that do not change data.

    Raises:
        UsageError: A named kind is unknown, is never drawn for such a run, or does not work on this engine.
    """
    trial = Chance(random=Random(0), nodes=nodes, ranks=ranks)
    drawable = {name: kind for name, kind in fault_kinds().items() if kind.drawn(trial) is not None}
    possible = {name: kind for name, kind in drawable.items() if not kind.why_not(engine)}
    for name in named:
        if why := drawable[name].why_not(engine) if name in drawable else "":
            raise UsageError(f"the search cannot use the fault {name}: it {why}")
        if name not in drawable:
            what = f"the search cannot use the fault {name!r} for this run{did_you_mean(name, possible)}"
            raise UsageError(what, f"allowed: {', '.join(possible)}")
    if named:
        return [possible[name] for name in dict.fromkeys(named)]
    return [kind for kind in possible.values() if kind.harm != "spoils"]


_NOTE = "note "


def broken_by(result: Result, harms: Sequence[Harm]) -> str:
    """Describe in a sentence what a run under faults broke; empty if it ended as such a run can.

    Args:
        result: Result of that run.
        harms: Effects that the injected faults can have.
    """
    if result.verdict in ("hung", "timeout"):
        return f"it hung: {result.reason}"
    if result.verdict == "error":
        return f"it has no verdict: {result.reason}"
    if "spoils" in harms:
        return ""
    unmet = result.unmet_by_script
    if unmet and not anybody_failed(result):
        return f"no rank failed, but {unmet[0].sentence()}"
    noted = {(rank.rank, _NOTE + name) for rank in result.ranks if rank.exit_code == 0 for name in rank.notes}
    if unmet_notes := [one for one in unmet if (one.rank, one.what) in noted]:
        return f"a rank ended without an error, but {unmet_notes[0].sentence()}"
    if anybody_failed(result) and "loses" not in harms:
        return f"it failed although {'its faults only delay ranks' if harms else 'no fault occurred'}: {result.reason}"
    return ""


def anybody_failed(result: Result) -> bool:
    """Return whether a rank or a node failed, whatever the scenario expects."""
    return result.culprit is not None or any(not one.met for one in result.expectations if one.what == "exit")


def shrink_schedule(schedule: Schedule, breaks: Callable[[Schedule], bool], most: int) -> list[Schedule]:
    """Return schedules that break something, each simpler than the one before; the last one is the simplest.

    It tries as few of the faults as possible, one before two, then earlier moments and shorter durations. It accepts a
    simpler schedule as soon as that breaks something, and stops when none does.

    Args:
        schedule: A schedule that breaks something.
        breaks: Tries a schedule; never called twice with the same one.
        most: Most schedules to try.
    """
    simpler, tried = [schedule], {schedule_key(*schedule)}
    candidates = _simpler(schedule)
    while (candidate := next(candidates, None)) is not None and len(tried) <= most:
        if schedule_key(*candidate) not in tried:
            tried.add(schedule_key(*candidate))
            if breaks(candidate):
                simpler.append(candidate)
                candidates = _simpler(candidate)
    return simpler


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    for length in range(1, len(schedule)):
        yield from combinations(schedule, length)
    for index, fault in enumerate(schedule):
        first = first_occurrence(fault.when)
        sooner = [replace(fault, when=first)] if first != fault.when else []
        shorter = [replace(fault, for_s=for_s) for for_s in DURATIONS_S if fault.for_s and for_s < fault.for_s]
        for simpler in (*sooner, *shorter):
            yield (*schedule[:index], simpler, *schedule[index + 1 :])


PROOFS = 3
"""How often a schedule must break something, run after run."""
MOST_SHRINKING = 40
"""Most schedules that are tried to shrink one."""


class Trial(Frozen):
    """A schedule that was tried, and its outcome."""

    schedule: Schedule
    ended: str
    """Verdict of the run under these faults."""
    reason: str = ""
    """Its reason, in one sentence."""
    broken: str = ""
    """The failure, in a sentence; empty: it broke nothing."""
    run: str = ""
    """Name of the run."""
    after: str = ""
    """Name of the run after it, if there was one."""
    seconds: float = 0.0
    step: str = "drawn"
    """Why it was tried: `drawn`, `shrunk`, `proof`."""

    def to_json(self) -> dict[str, Any]:
        """Convert the trial to plain data."""
        return {**vars(self), "schedule": [fault_data(fault) for fault in self.schedule]}


@dataclass(kw_only=True)
class SearchResult:
    """The outcome of a search."""

    trials: list[Trial] = field(default_factory=list)
    schedule: Schedule | None = None
    """The shortest schedule that breaks something; None: there is none."""
    broken: str = ""
    """The failure, in a sentence."""
    proofs: int = 0
    """How often it broke something, of `PROOFS`."""

    @property
    def ends(self) -> Counter[str]:
        """Count how the drawn schedules ended."""
        return Counter(trial.ended for trial in self.trials if trial.step == "drawn")

    def to_json(self) -> dict[str, Any]:
        """Convert the result to plain data."""
        faults, trials = [fault_data(one) for one in self.schedule or ()], [trial.to_json() for trial in self.trials]
        facts = {"ends": dict(self.ends), "found": faults, "broken": self.broken}
        return {**facts, "proofs": self.proofs, "trials": trials}


def sentences_of(schedule: Schedule | None) -> list[str]:
    """Describe each fault in a sentence."""
    return [fault_sentence(fault_data(fault)) for fault in schedule or ()]


def search_schedules(
    pool: Pool, runs: int, attempt: Callable[[Schedule, str], Trial], report: Callable[[Trial], object]
) -> SearchResult:
    """Search for a schedule that breaks something: the simplest that always does, else the drawn one.

    Args:
        pool: Source of schedules.
        runs: Most schedules to draw.
        attempt: Tries a schedule for a step of the search.
        report: Called with each trial.
    """
    result, tried = SearchResult(), set[str]()

    def breaks(schedule: Schedule, step: str) -> str:
        trial = attempt(schedule, step)
        result.trials.append(trial)
        report(trial)
        return trial.broken

    broken = next((one for one in islice(iter(lambda: pool.draw(tried), None), runs) if breaks(one, "drawn")), None)
    if broken is None:
        return result
    result.broken = result.trials[-1].broken
    simpler = shrink_schedule(broken, lambda other: bool(breaks(other, "shrunk")), MOST_SHRINKING)
    for schedule in (*simpler[:0:-1][:2], broken):
        proofs = list(takewhile(bool, (breaks(schedule, "proof") for _ in range(PROOFS))))
        result.schedule, result.proofs = schedule, len(proofs)
        if proofs:
            result.broken = proofs[0]
        if result.proofs == PROOFS:
            break
    return result


_SLOWER = 10.0
"""Factor of the time without faults after which a run is hung."""
_LEAST_S = 10.0
"""Least timeout of a run, in seconds."""
_LONGEST_NAME = 31


@dataclass(kw_only=True)
class Trials:
    """Runs of one scenario on a separate cluster."""

    warm_cluster: WarmCluster
    scenario: Scenario
    options: RunOptions
    again: bool = False
    """Whether the scenario also passes on its own leftovers in the shared folder, so that it can follow another run."""

    def undisturbed(self) -> Result:
        """Run it without faults; it must pass, and its duration determines when later runs count as hung.

        Raises:
            UsageError: It does not pass.
            LabError: It could not run.
        """
        first = self._run(self.scenario, fresh=True)
        if not first.passed:
            hint = "use a scenario that passes"
            raise UsageError(f"{self.scenario.name} {first.verdict} even without faults: {first.reason}", hint)
        if self.options.timeout_s is None and self.scenario.launcher.name == LAB:
            longest = max(_LEAST_S, _SLOWER * (first.duration_s or 0.0))
            self.scenario = replace(self.scenario, timeout_s=min(self.scenario.timeout_s, longest))
        self.again = self._run(self.scenario, fresh=False).passed
        return first

    def make_pool(self, first: Result, seed: int, kinds: Sequence[str], most: int) -> Pool:
        """Make the pool of schedules of a seed from the record of the run without faults.

        Raises:
            UsageError: There is nothing to draw from, or one of these kinds cannot be drawn.
        """
        assert first.path is not None  # every run has a record
        nodes, ranks = list(dict.fromkeys(rank.node for rank in first.ranks)), [rank.rank for rank in first.ranks]
        drawn = kinds_drawn(self.warm_cluster.slot.engine.name, nodes, ranks, kinds)
        if not (moments := moments_of(Record(path=first.path))):
            hint = "a search draws faults at calls and notes"
            raise UsageError(f"{self.scenario.name} has no calls and no notes", hint)
        return Pool(random=Random(seed), kinds=drawn, moments=moments, nodes=nodes, ranks=ranks, most=most)

    def attempt(self, schedule: Schedule, step: str) -> Trial:
        """Run it under faults, and again without them if they made it fail.

        Raises:
            Interrupted: The user ended the search.
            EngineUnavailable: The engine does not answer.
        """
        began, trial = time.monotonic(), Trial(schedule=schedule, step=step, ended="error")
        try:
            result = self._run(with_faults(self.scenario, schedule), fresh=True)
            done = {str(one["fault"]) for one in result.faults}  # a failed one can be partly applied
            broken = broken_by(result, [fault.what.harm for fault in schedule if str(fault) in done])
            trial = replace(trial, ended=result.verdict, reason=result.reason, broken=broken, run=result.run)
            if not broken and self.again and anybody_failed(result):
                following = self._run(self.scenario, fresh=False)
                if not following.passed:  # because of leftovers of the previous run
                    broken = f"the next run, without faults, {following.verdict}: {following.reason}"
                trial = replace(trial, broken=broken, after=following.run)
        except (Interrupted, EngineUnavailable):
            raise
        except LabError as error:  # one of the runs could not begin
            trial = replace(trial, ended="error", reason=error.message)
        return replace(trial, seconds=round(time.monotonic() - began, 3))

    def _run(self, scenario: Scenario, *, fresh: bool) -> Result:
        outcome = self.warm_cluster.attempt(scenario, replace(self.options, fresh=fresh), Observer()).complete()
        if outcome.exit_code == Interrupted.exit_code:
            raise Interrupted("the search was interrupted")
        return outcome


@contextmanager
def trials_next_to(cluster: Cluster, scenario: Scenario, options: RunOptions) -> Iterator[Trials]:
    """Make trials of a scenario on a separate cluster of the same settings that is removed at the end.

    Raises:
        UsageError: The scenario has its own faults, is expected to fail, or would mount folders.
    """
    refuse_unfit_for_search(scenario)
    slot = replace(cluster.slot, name=f"{cluster.name[:_LONGEST_NAME]}-chaos-{os.urandom(2).hex()}")
    refuse_foreign_wishes(scenario, slot.engine, slot.asked, options)
    shape = shape_for(scenario, options, slot.asked)
    scenario = replace(scenario, timeout_s=options.timeout_s or scenario.timeout_s)
    with hold_warm_cluster(slot, shape, "chaos", f"a search with {scenario.name}") as warm_cluster:
        yield Trials(warm_cluster=warm_cluster, scenario=scenario, options=options)


def refuse_unfit_for_search(scenario: Scenario) -> None:
    """Refuse a scenario that a search cannot use.

    Raises:
        UsageError: It is one.
    """
    name, expected = scenario.name, scenario.expect.verdict
    if expected != "passed":
        raise UsageError(f"{name} expects the verdict {expected}", "use a scenario that passes")
    if broken_in(scenario).faults:
        raise UsageError(f"{name} has its own faults", "remove them: the search draws faults")
    if not scenario.trace.on:
        raise UsageError(f"{name} records no calls", "remove `trace: false`: the search draws faults at calls")


_LONGEST_LINE = 200
_LONGEST_FILE_NAME = 60


def choose_scenario_path(scenario: Scenario, seed: int) -> Path:
    """Choose a new file for the scenario, in the script's folder, because that folder is shipped.

    Raises:
        UsageError: The folder cannot be written.
    """
    folder = scenario.script.parent
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write into {folder}", "search with a copy of the scenario")
    name = clip_end(f"chaos-{seed}-{scenario.name}", _LONGEST_FILE_NAME)
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(path for name in names if not (path := folder / f"{name}.yaml").exists())


def write_scenario(scenario: Scenario, result: SearchResult, path: Path, size: tuple[int, int], command: str) -> None:
    """Write the scenario with the faults; if a following run fails, the new scenario runs it too.

    Raises:
        UsageError: It cannot be written.
    """
    again = any(trial.after for trial in result.trials if trial.step == "proof")
    kept = {name: value for name, value in scenario.extra.items() if name in ("network", "requirements")}
    bare = replace(scenario, name=path.stem, source=path, learn="", extra=kept, nodes=size[0], nproc_per_node=size[1])
    outcome = f"In {result.proofs} of {PROOFS} runs: {result.broken}"
    comments = [f"Found by `{command}`.", *sentences_of(result.schedule), outcome]
    head = "".join(f"# {clip_end(' '.join(line.split()), _LONGEST_LINE)}\n" for line in comments)
    shared.write_text(path, head + dump_scenario(with_faults(bare, result.schedule or (), rerun=again)))


# -- the command


def run_search(arguments: argparse.Namespace, schedules: int) -> int:
    """Search, and show the result; return the exit code, 1 if a schedule breaks something."""
    scenarios, options, shape = read_arguments(arguments)
    if len(scenarios) != 1:
        raise UsageError(f"--chaos searches one scenario, not {len(scenarios)}", "name one")
    scenario, seed, began = scenarios[0], arguments.seed or 0, time.monotonic()
    runs = arguments.schedules or schedules
    path = choose_scenario_path(scenario, seed)
    with shared.Progress(quiet=arguments.quiet or arguments.json) as display:
        style, numbers = style_for(sys.stderr), Counter[str]()
        cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=display.announce, **shape)
        with trials_next_to(cluster, scenario, options) as trials:
            first = trials.undisturbed()
            named = [word for word in (arguments.kinds or "").split(",") if word]
            pool = trials.make_pool(first, seed, named, arguments.most or Pool.most)
            kinds = ", ".join(map(key_of, pool.kinds))
            after = "" if trials.again else "; it stops at the first failure, because the scenario does not pass twice"
            display.line(
                f"passed without faults in {format_duration(first.duration_s or 0.0)}; "
                f"{format_count(len(pool.moments), 'moment')}; faults: {kinds}; "
                f"time limit {format_duration(trials.scenario.timeout_s)}{after}"
            )

            def show(trial: Trial) -> None:
                numbers[trial.step] += 1
                display.line(trial_text(trial, numbers[trial.step], runs, style))

            result = search_schedules(pool, runs, trials.attempt, show)
            if result.schedule:
                size = len(pool.nodes), len(pool.ranks) // len(pool.nodes)
                write_scenario(trials.scenario, result, path, size, shlex.join(["lab", *sys.argv[1:]]))
    file = str(path) if result.schedule else None
    data = {"scenario": scenario.name, "seed": seed, "file": file, **result.to_json()}
    shared.print_answer(arguments, data, lambda style: summary_text(result, path, time.monotonic() - began, style))
    return 1 if result.schedule else 0


def trial_text(trial: Trial, number: int, count: int, style: Style) -> str:
    """Format a trial: `[12/50] ✔ passed  kill node1 when rank 0 comes to all_reduce 3`."""
    faults, took = "; ".join(sentences_of(trial.schedule)), format_duration(trial.seconds)
    line = ended_line(number, count, trial.ended, faults, took, style)
    if trial.step != "drawn":
        line = f"  {'shorter' if trial.step == 'shrunk' else 'again'}: {line.partition('] ')[2]}"
    return f"{line}\n    {style.paint(trial.broken, 'bold')}" if trial.broken else line


def summary_text(result: SearchResult, path: Path, seconds: float, style: Style) -> str:
    """Count how the schedules ended, and describe the shortest one that breaks something."""
    text = f"{format_count(sum(result.ends.values()), 'schedule')}: {counts_text(result.ends, seconds, style)}"
    if result.schedule is None:
        return f"{text}\nit survived every schedule"
    proven = f"{result.proofs} of {PROOFS} runs" if result.proofs == PROOFS else "not every time"
    what = f"found, and shrunk to {format_count(len(result.schedule), 'fault')} ({proven}): {result.broken}"
    return "\n".join([text, what, *(f"  {sentence}" for sentence in sentences_of(result.schedule)), f"  {path}"])
