"""`lab learn`: a scenario as a lesson: what there is to learn, a prediction, the run, the answer."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.answer import say
from lab.cluster import Cluster
from lab.errors import UsageError
from lab.report.lesson import answer_text, question_text
from lab.report.live import LiveOutput
from lab.report.style import style_for
from lab.run.options import RunOptions
from lab.spec.lessons import find_lesson
from lab.spec.load import open_scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lesson = parser.add_argument("scenario", metavar="LESSON", help="its name, such as scatter, or a scenario's file")
    shared.completes(lesson, "lessons")
    parser.add_argument(
        "--folder", type=Path, help="where to look for it (default: scenarios, then the lessons that come with the lab)"
    )
    parser.add_argument("--nodes", type=shared.positive, help="nodes that take part")
    parser.add_argument("--nproc-per-node", type=shared.positive, help="workers on each node")
    parser.add_argument("--answer", metavar="TEXT", help="your prediction, instead of being asked for it")
    shared.add_cluster(parser)
    shared.add_wait(parser)
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask, run, reveal; the exit code is that of the verdict."""
    path = Path(arguments.scenario)
    folders = [arguments.folder] if arguments.folder else None
    scenario = open_scenario(path if path.suffix else find_lesson(arguments.scenario, folders))
    if not scenario.learn:
        raise UsageError(f"{scenario.name} is not a lesson", "add `learn:` and `predict:` to it")
    style = style_for(sys.stdout)
    quiet = arguments.json
    if not quiet:
        say(question_text(scenario, style))
    prediction = arguments.answer if arguments.answer is not None else _ask(quiet)
    live = LiveOutput(sys.stdout, sys.stderr, quiet=quiet)
    options = RunOptions(**shared.fields_said(RunOptions, arguments))
    cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=live.progress)
    try:
        result = cluster.run(scenario, observer=live, options=options)
    finally:
        live.finish()
    if quiet:
        print(json.dumps({**result.to_json(), "prediction": prediction}))
    else:
        say(answer_text(result, prediction, style))
    return result.exit_code


def _ask(quiet: bool) -> str:
    if quiet or not sys.stdin.isatty():
        return ""
    try:
        return input("your prediction (Enter to skip): ").strip()
    except EOFError:
        return ""
