"""`lab run`: run scenarios or scripts and print their verdicts.

Arguments after -- go to the script. If no cluster is up, the lab creates one for the run
and removes it afterwards. Several scenarios run one after another on one cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.cluster import Cluster
from lab.errors import EngineUnavailable, Interrupted, LabError, MachineLacks, UsageError
from lab.feature import find_hook
from lab.report.live import LiveOutput
from lab.report.style import style_for
from lab.report.verdict import progress_line, summary_text, verdict_text, written_snapshots
from lab.run.options import DryRun, RunOptions, plan_all
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.record.result import Result


def add_arguments(parser: Parser) -> None:
    shared.add_scenarios(parser, "run")
    shared.add_options(parser, "--nodes", "--nproc-per-node", "--timeout", "--stall", "--backend", "--launcher")
    shared.add_options(parser, "--cold", "--fresh", "--max-output", "--one-user", "--split-gpus", "--rewrite-address")
    shared.add_options(parser.group("ranks").add_mutually_exclusive_group(), "--interactive", "--stdin")
    shared.add_options(parser, "--name", "--engine", "--keep", "--wait", *shared.SHAPE, "--allow-volumes", "--pull")
    shared.add_options(parser, "--folder", "--all-files", "--outputs", "--runs")
    shared.add_options(parser.group("record").add_mutually_exclusive_group(), "--no-trace", "--trace-values")
    shared.add_options(parser, "--json", "--raw")
    shared.add_options(parser, "--quiet", help="print the verdict only")
    about = "print what each rank and the cluster would get, then stop"
    shared.add_options(parser.group("output"), "--dry-run", action="store_true", help=about, rare=True)


def run(arguments: argparse.Namespace) -> int:
    """Run the scenarios; return the exit code of the worst verdict."""
    scenarios, options, shape = read_arguments(arguments)
    if arguments.dry_run:
        return _dry_run(scenarios, options, arguments, shape)
    is_batch = len(scenarios) > 1
    options = replace(options, terminal=not (is_batch or arguments.json or arguments.quiet or options.stdin))
    if options.interactive is not None and (require_terminal := find_hook("require_terminal")):
        require_terminal()
    if is_batch and (options.stdin or options.interactive is not None):
        hint = "name only the scenario that needs --interactive or --stdin"
        raise UsageError(f"{len(scenarios)} scenarios cannot share the terminal or standard input", hint)
    out, quiet = sys.stderr if arguments.json else sys.stdout, arguments.quiet or arguments.json
    limit_s = None if is_batch else options.timeout_s or scenarios[0].timeout_s
    live = LiveOutput(out, sys.stderr, quiet=quiet, lines=not is_batch, raw=arguments.raw, limit_s=limit_s)
    cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=live.progress, **shape)
    if is_batch:
        return _run_all(cluster, scenarios, options, live, arguments)
    began = time.monotonic()
    try:
        result = cluster.run(scenarios[0], observer=live, options=options)
    finally:
        live.finish()
    if arguments.json:
        print(json.dumps(result.to_json()))
    else:
        if result.exit_code == Interrupted.exit_code and sys.stdout.isatty():
            print()  # the terminal shows ^C
        shared.print_sanitized(verdict_text(result, style_for(sys.stdout), time.monotonic() - began))
    arguments.results = [result]
    return result.exit_code


def read_arguments(arguments: argparse.Namespace) -> tuple[list[Scenario], RunOptions, dict[str, Any]]:
    """Return the scenarios, the options, and the requested shape of the cluster."""
    shape = shared.shape_arguments(arguments)
    env = shape.pop("env")  # environment of the run, not of the cluster
    scenarios = shared.named_scenarios(arguments.scenarios, arguments.rest, env)
    if arguments.folder is not None:
        folder = Path(os.path.abspath(arguments.folder))
        for one in scenarios:
            if not one.script.is_relative_to(folder):
                raise UsageError(f"--folder {arguments.folder} does not contain {one.script}", "name a folder above it")
        scenarios = [replace(one, folder=folder) for one in scenarios]
    return scenarios, RunOptions(**shared.field_values(RunOptions, arguments)), shape


def _run_all(
    cluster: Cluster, scenarios: list[Scenario], options: RunOptions, live: LiveOutput, arguments: argparse.Namespace
) -> int:
    style, began, numbers = style_for(sys.stdout), time.monotonic(), count(1)

    def ended(scenario: Scenario, outcome: Result | LabError) -> None:
        live.finish()
        number = next(numbers)
        if arguments.json:
            return
        shared.print_sanitized(progress_line(number, len(scenarios), scenario, outcome, style))
        if isinstance(outcome, LabError):
            return
        if not outcome.passed and not arguments.quiet:
            shared.print_sanitized(verdict_text(outcome, style))
        else:
            for sentence in written_snapshots(outcome):
                shared.print_sanitized(f"  {sentence}")

    outcomes = cluster.run_all(scenarios, observer=live, options=options, ended=ended)
    shared.print_answer(
        arguments,
        lambda: [_outcome_json(*pair) for pair in zip(scenarios, outcomes, strict=False)],
        lambda style: summary_text(outcomes, time.monotonic() - began, style),
    )
    arguments.results = [outcome for outcome in outcomes if not isinstance(outcome, LabError)]
    return max(0 if isinstance(outcome, MachineLacks) else outcome.exit_code for outcome in outcomes)


def _outcome_json(scenario: Scenario, outcome: Result | LabError) -> dict[str, object]:
    if not isinstance(outcome, LabError):
        return outcome.to_json()
    verdict = "skipped" if isinstance(outcome, MachineLacks) else "error"
    error = {"verdict": verdict, "scenario": scenario.name, "reason": outcome.message, "hint": outcome.hint}
    return {**error, "exit_code": outcome.exit_code}


def _dry_run(
    scenarios: list[Scenario], options: RunOptions, arguments: argparse.Namespace, shape: dict[str, Any]
) -> int:
    from lab.report.plan_view import dry_run_text

    try:
        runs = Cluster(name=arguments.name, engine=arguments.engine, **shape).dry_run(scenarios, options)
    except EngineUnavailable:  # the cluster is unknown, but not what would run
        asked = {name: value for name, value in shape.items() if value}
        runs = [DryRun(plan=plan) for plan, _ in plan_all(scenarios, options, asked)]
    data = [run.to_json() for run in runs] if len(runs) > 1 else runs[0].to_json()
    return shared.print_answer(arguments, data, lambda style: "\n\n".join(dry_run_text(run, style) for run in runs))
