"""`lab test`: run many scenarios on parallel warm clusters, and report the outcomes to people and machines.

Examples:
  lab test scenarios/                             all of them, on as many clusters as the machine supports
  lab test scenarios/ -j 4 --junit junit.xml      on at most four, with a file for GitLab or Jenkins
  lab test train.yaml --nodes 2,3,5               each size: train[nodes=2], train[nodes=3], train[nodes=5]
  lab test train.yaml --repeat 100 -x             until it fails; shows rates of failures, with the seeds
  lab test scenarios/ --markdown "$GITHUB_STEP_SUMMARY"

exit codes: the highest of all cases: 0 passed (also after a retry, or skipped), 1 failed, or worse than the
baseline, 2 refused, 3 no engine, 4 hung; 130 interrupted. docs/ci.md says more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.features.compare.baseline import compare_with_runs
from lab.features.records.records import earlier_records
from lab.features.suite.cases import Case, Matrix, SuiteRequest, make_cases, open_or_report
from lab.features.suite.run import execute_suite
from lab.features.suite.view import SuiteDisplay, suite_text, write_files
from lab.report.style import style_for, table_text
from lab.run.options import RunOptions
from lab.words import NONE

_part = shared.number_argument("a share, such as 10% or 0.1", lambda part: 0 <= part < 1000, percent=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_scenarios(parser, "test")
    which = parser.add_argument_group("cases")
    which.add_argument("-k", dest="only", metavar="WORDS", help="cases to run, such as 'scatter and not nodes=5'")
    for name, kind in (("--nodes", shared.positive), ("--nproc-per-node", shared.positive), ("--backend", str)):
        shared.add_options(which, name, type=_comma_separated(kind), default=(), metavar="A,B,...")
    which.add_argument("--list", action="store_true", help="list the cases, and why some cannot run; run nothing")
    how = parser.add_argument_group("how")
    how.add_argument("-j", "--jobs", type=shared.positive, metavar="N", help="at most N clusters in parallel")
    how.add_argument("--retries", type=shared.whole, default=0, metavar="N", help="retry failed cases up to N times")
    how.add_argument("--repeat", type=shared.positive, default=1, metavar="N", help="run each case N times")
    how.add_argument("--shuffle", action="store_true", help="run the cases in random order")
    how.add_argument("--seed", type=shared.whole, metavar="N", help="seed of that order, and the first $LAB_SEED")
    stop = how.add_mutually_exclusive_group()
    stop.add_argument("-x", dest="maxfail", action="store_const", const=1, help="the same as --maxfail 1")
    stop.add_argument("--maxfail", type=shared.positive, metavar="N", help="start no more cases after N failures")
    shared.add_options(parser, "--cold", "--timeout", "--no-trace", "--allow-volumes", "--pull")
    shared.add_options(parser, "--name", "--engine", *shared.SHAPE, "--wait", "--runs")
    files = parser.add_argument_group("results")
    about = (
        "compare with earlier runs: a folder of runs, a suite, or a run; exit code 1 if a scenario is "
        "slower, sends more, or makes other calls"
    )
    shared.add_options(files, "--baseline", metavar="RUNS", help=about, complete="runs")
    about = "with --baseline: how much slower a scenario may be, such as 10%% (default: 20%%)"
    files.add_argument("--slower", dest="tolerance", type=_part, metavar="PART", default=0.2, help=about)
    files.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, for GitLab, Jenkins, and others")
    files.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown, for the page of a CI job")
    files.add_argument("--html", type=Path, metavar="FILE", help="write one page with links to the report of each run")
    files.add_argument("--json", action="store_true", help="print a line of JSON for each case, then a summary")
    files.add_argument("--quiet", "-q", action="store_true", help="print cases that did not pass, and the counts")


def run(arguments: argparse.Namespace) -> int:
    """Run the suite; return the worst exit code."""
    asked = _asked(arguments)
    if arguments.list:
        return _list(make_cases(asked, arguments.engine, seed=asked.seed), arguments)
    before = earlier_records(arguments.baseline, arguments.runs) if arguments.baseline else None
    with SuiteDisplay(sys.stdout, sys.stderr, quiet=arguments.quiet, machine=arguments.json) as display:
        result = execute_suite(asked, display)
    compared = None
    if before is not None:
        compared = compare_with_runs(before, result.records, arguments.baseline, arguments.tolerance)
    if arguments.json:
        if compared is not None:
            print(json.dumps(compared.to_json()))
        print(json.dumps(result.to_json()), flush=True)
    else:
        print()
        shared.print_sanitized(suite_text(result, style_for(sys.stdout), brief=arguments.quiet))
        if compared is not None:
            from lab.features.compare.compare import baseline_text

            shared.print_sanitized(baseline_text(compared, style_for(sys.stdout)))
    write_files(result, compared, junit=arguments.junit, markdown=arguments.markdown, html=arguments.html)
    return max(result.exit_code, compared.exit_code if compared is not None else 0)


_SAME_NAMES = ("engine", "name", "jobs", "retries", "repeat", "shuffle", "seed")
"""Arguments that are fields of the request."""


def _asked(arguments: argparse.Namespace) -> SuiteRequest:
    shape = shared.shape_arguments(arguments)
    env = shape.pop("env")  # environment of the runs, not of the cluster
    images = tuple(filter(None, (shape.pop("image") or "").split(",")))
    values = shared.field_values(RunOptions, arguments)
    dimensions = {name: values.pop(name) for name in ("nodes", "nproc_per_node", "backend")}
    return SuiteRequest(
        scenarios=shared.named_scenarios(arguments.scenarios, arguments.rest, env, open_or_report),
        matrix=Matrix(**dimensions, image=images),
        only=arguments.only or "",
        shape={name: value for name, value in shape.items() if value},
        options=RunOptions(**values),
        most_failures=arguments.maxfail,
        **{name: getattr(arguments, name) for name in _SAME_NAMES},
    )


def _list(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = [
        {
            "id": case.id,
            "scenario": str(case.scenario.source or case.scenario.script),
            "nodes": case.nodes if arguments.nodes or case.scenario.nodes else None,  # else the number of the cluster
            "nproc_per_node": case.nproc_per_node,
            "image": case.scenario.image,
            "seed": case.seed,
            "skipped": case.skipped,
        }
        for case in cases
    ]
    shown = [[str(row[name] or NONE) for name in ("id", "nodes", "nproc_per_node", "skipped")] for row in rows]
    head = ["case", "nodes", "workers of each", "skipped"]
    return shared.print_answer(arguments, lambda: rows, lambda style: table_text(head, shown, style))


def _comma_separated(one: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Parse values that are separated by commas."""
    return lambda words: tuple(map(one, words.split(",")))
