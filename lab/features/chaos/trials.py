"""Try schedules on one warm cluster that exists only for them, and write the result as a scenario."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from random import Random

from lab.cli import arguments as shared
from lab.cli.cmd_run import read_arguments
from lab.cluster import Cluster
from lab.errors import EngineUnavailable, Interrupted, LabError, UsageError
from lab.features.chaos import search
from lab.features.chaos.search import PROOFS, Pool, Schedule, SearchResult, Trial, sentences_of
from lab.features.faults.fault import broken_in, with_faults
from lab.features.faults.kinds import key_of
from lab.features.suite.pool import hold_warm_cluster
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
from lab.spec.scenario import Scenario
from lab.words import clip_end, format_count, format_duration

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
        if first.path is None:
            raise UsageError("the run has no record, so there are no events to draw from")
        nodes, ranks = list(dict.fromkeys(rank.node for rank in first.ranks)), [rank.rank for rank in first.ranks]
        drawn = search.kinds_drawn(self.warm_cluster.slot.engine.name, nodes, ranks, kinds)
        if not (moments := search.moments_of(Record(path=first.path))):
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
            broken = search.broken_by(result, [fault.what.harm for fault in schedule if str(fault) in done])
            trial = replace(trial, ended=result.verdict, reason=result.reason, broken=broken, run=result.run)
            if not broken and self.again and search.anybody_failed(result):
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
    expected, passing = scenario.expect.verdict, "use a scenario that passes"
    for is_unfit, why, hint in (
        (expected != "passed", f"expects the verdict {expected}", passing),
        (broken_in(scenario).faults, "has its own faults", "remove them: the search draws faults"),
        (not scenario.trace.on, "records no calls", "remove `trace: false`: the search draws faults at calls"),
    ):
        if is_unfit:
            raise UsageError(f"{scenario.name} {why}", hint)


_LONGEST_LINE = 200
_LONGEST_FILE_NAME = 60


def choose_scenario_path(scenario: Scenario, seed: int, out: Path | None) -> Path:
    """Choose a new file for the scenario, in the script's folder, because that folder is shipped.

    Raises:
        UsageError: It cannot be written.
    """
    folder = scenario.script.parent
    name = clip_end(f"chaos-{seed}-{scenario.name}", _LONGEST_FILE_NAME)
    path = folder / f"{name}.yaml" if out is None else Path(os.path.abspath(out))
    for is_unfit, why, hint in (
        (path.parent != folder, f"{path} is not next to the script", f"name a file in {folder}"),
        (path.exists() and out is not None, f"{path} exists", "name another file, or remove it"),
        (not os.access(folder, os.W_OK), f"cannot write into {folder}", "search with a copy of the scenario"),
    ):
        if is_unfit:
            raise UsageError(why, hint)
    numbered = (folder / f"{name}-{number}.yaml" for number in count(2))
    return next(one for one in chain([path], numbered) if not one.exists())


def write_scenario(scenario: Scenario, result: SearchResult, path: Path, size: tuple[int, int], command: str) -> None:
    """Write the scenario with the faults; if a following run fails, the new scenario runs it too.

    Raises:
        UsageError: It cannot be written.
    """
    again = any(trial.after for trial in result.trials if trial.step == "proof")
    bare = replace(
        scenario,
        name=path.stem,
        source=path,
        learn="",
        extra={name: value for name, value in scenario.extra.items() if name in ("network", "requirements")},
        nodes=size[0],
        nproc_per_node=size[1],
    )
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
    path = choose_scenario_path(scenario, seed, arguments.out)
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

            result = search.search_schedules(pool, runs, trials.attempt, show)
            if result.schedule:
                size = len(pool.nodes), len(pool.ranks) // len(pool.nodes)
                write_scenario(trials.scenario, result, path, size, shlex.join(["lab", *sys.argv[1:]]))
    file = str(path) if result.schedule else None
    shared.print_answer(
        arguments,
        lambda: {"scenario": scenario.name, "seed": seed, "file": file, **result.to_json()},
        lambda style: summary_text(result, path, time.monotonic() - began, style),
    )
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
