"""`lab record`: run any command as it is, record the ranks that its processes form, and judge them.

Examples:
  lab record -- torchrun --nproc-per-node 4 train.py
  lab record --stall 60s -- python -m pytest tests/distributed
  lab record --stall 60s --on-stall stop -- make test
  lab explain                       explain the last world of the command

Needs no cluster. The command keeps its terminal, environment, and exit code, which is also the exit code of
`lab record`: 4 only if --on-stall stop ended a world. Ranks that meet form a world, and each world is a run of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.errors import UsageError
from lab.record.layout import RUNS
from lab.report.sanitize import sanitize_plain, sanitize_text
from lab.report.style import style_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.record.result import RankResult, Result

_HUNG = 4
_MOST_SHOWN = 10
"""Worlds that did not pass whose verdicts are printed."""
_INTERPRETERS = ("python", "python3", "sh", "bash")


def add_arguments(parser: Parser) -> None:
    parser.usage = "lab record [options] [--] COMMAND ..."
    parser.set_defaults(rest=[], own_words=0)
    about = "folder of the runs (default: .lab/runs)"
    parser.add_argument("-o", "--runs", type=Path, default=RUNS, metavar="DIR", help=about)
    about = "diagnose ranks once nothing has happened for this long while they wait; 0 turns it off (default: 5m)"
    parser.add_argument("--stall", type=shared.stall_limit, default=300.0, metavar="TIME", help=about)
    about = "what to do then: report it (default), or stop the ranks of that world and exit with code 4"
    parser.add_argument("--on-stall", choices=("report", "stop"), default="report", help=about)
    shared.add_options(parser, "--trace-values")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if not arguments.rest:
        raise UsageError("there is no command to record", "write it after --: `lab record -- torchrun train.py`")
    from lab.features.recording.supervisor import Supervisor

    runs, stops = arguments.runs.absolute(), arguments.on_stall == "stop"
    reported: dict[str, str] = {}
    """By run: the reason that was printed."""

    def report(result: Result) -> None:
        reported[result.run] = result.reason
        how = "" if stops else " (the command goes on; --on-stall stop ends it)"
        _print(result, f"lab record: at {time.strftime('%H:%M:%S')}, a world stands still{how}\n")

    supervisor = Supervisor(name_of(arguments.rest), runs, Path.cwd(), arguments.stall, report, stops=stops)
    code = supervisor.run(arguments.rest, arguments.trace_values)
    results = supervisor.conclude()
    if results or not (supervisor.has_other or supervisor.error):  # `pytest --lab` reports what it recorded
        _print_verdicts(results, reported)
    if any(world.stopped_at for world in supervisor.worlds):
        return _HUNG
    if code < 0:  # end as the command did
        from lab.node.processes import end_by_signal

        end_by_signal(-code)
    return code


def name_of(words: list[str]) -> str:
    """Return the name of a command: of its script or module, unless the program has a name of its own."""
    program, *rest = words
    name = os.path.basename(program)
    if name.rstrip("0123456789.") in _INTERPRETERS and rest:
        module = rest[rest.index("-m") + 1] if "-m" in rest[:-1] else ""
        script = next((word for word in rest if word.endswith((".py", ".sh"))), "")
        name = module.rpartition(".")[2] or os.path.basename(script) or name
    return os.path.splitext(name)[0] or "command"


def _print_verdicts(results: list[Result], reported: dict[str, str]) -> None:
    """Print the verdict of each world that did not pass, and how many there are."""
    if not results:
        sys.stderr.write("lab record: no process of the command joined a process group, so there is no record\n")
        return
    bad = [result for result in results if not result.passed]
    for result in bad[:_MOST_SHOWN] if len(results) > 1 else results:
        _print(result, brief=reported.get(result.run) == result.reason)
    sys.stderr.write(annotations_text(bad[:_MOST_SHOWN]))
    if len(results) > 1:
        counts = f"{len(results)} worlds, of which {len(results) - len(bad)} passed"
        sys.stderr.write(f"lab record: {counts}; `lab runs` lists their records\n")


def _print(result: Result, head: str = "", *, brief: bool = False) -> None:
    """Print a verdict; if `brief`, without stacks, which were printed before."""
    from lab.report.verdict import verdict_text

    lines = sanitize_text(verdict_text(result, style_for(sys.stderr))).splitlines()
    text = "\n".join([lines[0], lines[-1]] if brief else lines)
    sys.stderr.write(f"{head}{text}\n")


def failed_test_text(result: Result) -> str:
    """Format the verdict on a run of a failed test; if the run passed, say that the test itself failed."""
    from lab.report.style import Style
    from lab.report.verdict import verdict_text

    head, *rest = verdict_text(result, Style(colour=False)).split("\n")
    return "\n".join([f"{result.reason}; the test itself failed" if result.passed else head, *rest])


def annotations_text(results: Iterable[Result], folder: str | Path = "") -> str:
    """Return annotations of lines of the user's code, a line each; empty outside of GitHub's jobs.

    Paths are relative to the checkout. Lines of files outside of it are left out.

    Args:
        results: of runs; those that passed have none.
        folder: of the user's code.
    """
    top = os.environ.get("GITHUB_WORKSPACE", "") if os.environ.get("GITHUB_ACTIONS") == "true" else ""
    lines = list[str]()
    for result in (one for one in results if top and not one.passed):
        file, _, line = _location_of(result).rpartition(":")
        path = os.path.relpath(Path(folder, file).resolve(), os.path.realpath(top))
        if Path(folder, file).is_file() and not path.startswith(".."):
            title = _escaped(f"lab: {result.verdict} in {result.scenario}")
            options = f"file={_escaped(path)},line={line},title={title}"
            heading = "warning" if result.verdict == "error" else "error"
            lines.append(f"::{heading} {options}::{sanitize_plain(result.reason).replace('%', '%25')}\n")
    return "".join(lines)


def _location_of(result: Result) -> str:
    """Return `train.py:41`: where the culprit failed or stood, else a line of a finding, else where others waited."""
    from lab.diagnosis.stacks import find_location, find_raised

    def lines_of(rank: RankResult) -> list[str]:
        both = find_raised(rank.traceback, folder), find_location(rank.stack, folder)
        return [one.at for one in both if one is not None and one.own]

    folder, culprit = result.path or Path(), result.culprit.rank if result.culprit is not None else None
    lines = [line for rank in result.ranks if rank.rank == culprit for line in lines_of(rank)]
    lines += [line for finding in result.findings for line in finding.lines]
    return [*lines, *(line for rank in result.ranks if rank.stack for line in lines_of(rank)), ""][0]


def _escaped(text: str) -> str:
    """Return a text as the value of an option."""
    return re.sub("[%:,]", lambda one: f"%{ord(one[0]):02X}", sanitize_plain(text))
