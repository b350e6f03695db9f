"""`lab learn`: do a lesson, or show the progress on the learning path."""

from __future__ import annotations

import argparse
import json
import select
import sys
from contextlib import suppress

from lab.cli import arguments as shared
from lab.cli.arguments import print_answer, print_sanitized
from lab.cluster import Cluster
from lab.errors import UsageError
from lab.features.lessons import progress
from lab.features.lessons.lesson import Lesson, LessonResult, learn, lesson_result_text, question_text
from lab.features.lessons.progress import path_json, path_text, read_progress, summary_json, summary_text
from lab.features.lessons.question import LETTERS, Question
from lab.report.live import LiveOutput
from lab.report.sanitize import sanitize_text
from lab.report.style import style_for
from lab.run.options import RunOptions

_PIPE_WAIT_S = 2.0
"""How long to wait for a line if standard input is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab learn [LESSON | --next | --summary] [options]"
    parser.epilog = (
        "Without a lesson, print the learning path and your progress. "
        f"{progress.FOLDER_VARIABLE} sets the folder of the progress files; a class on one machine can share it."
    )
    about = "name of the lesson, such as scatter, or a scenario file"
    shared.add_options(parser, "scenario", metavar="LESSON", nargs="?", help=about, complete="lessons")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--next", action="store_true", help="do the first lesson of the path that you have not done")
    which.add_argument("--summary", action="store_true", help="show how many lessons everyone has done and predicted")
    parser.add_argument("--as", dest="person", metavar="NAME", help="whose progress to record (default: yours)")
    shared.add_options(parser, "--nodes", "--nproc-per-node")
    parser.add_argument("--answer", metavar="TEXT", help="your prediction (default: the lab asks for it)")
    shared.add_options(parser, "--name", "--engine", "--wait", "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Ask, run, reveal, and continue; return the exit code of the worst verdict."""
    path, person = progress.load_learning_path(), progress.resolve_person(arguments.person)
    if arguments.scenario and (arguments.next or arguments.summary):
        option = "--next" if arguments.next else "--summary"
        raise UsageError(f"{option} cannot be combined with a lesson ({arguments.scenario})", "remove one of them")
    if arguments.summary:
        shown = progress.read_all_progress() if arguments.person is None else [read_progress(person)]
        return print_answer(arguments, lambda: summary_json(shown), lambda style: summary_text(shown, style))
    name = arguments.scenario
    if name is None:
        own = read_progress(person)
        name = next_lesson = path.next_after("", own.counted_attempts)
        if not arguments.next or not name:
            known = path, own, next_lesson
            return print_answer(arguments, lambda: path_json(*known), lambda style: path_text(*known, style))
    worst, reply = 0, arguments.answer
    while name:
        outcome = _run_lesson(learn(name, person=person), reply, arguments)
        worst = max(worst, outcome.result.exit_code)
        name, reply = _choose_next(outcome, arguments), None
    return worst


def _run_lesson(lesson: Lesson, reply: str | None, arguments: argparse.Namespace) -> LessonResult:
    style, question = style_for(sys.stdout), lesson.question
    if reply is not None:
        reply = question.parse_reply(reply)
    options = RunOptions(**shared.field_values(RunOptions, arguments))
    if not arguments.json:
        print_sanitized(question_text(lesson, style, options))
    if reply is None:
        reply = _ask_prediction(question, arguments.json)
    if not arguments.json:
        print(flush=True)
    live = LiveOutput(sys.stdout, sys.stderr, quiet=arguments.json)
    cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=live.progress)
    try:
        outcome = lesson.run(reply, cluster, observer=live, options=options)
    finally:
        live.finish()
    if arguments.json:
        print(json.dumps(outcome.to_json()))
    else:
        print_sanitized(f"\n{lesson_result_text(outcome, style)}")
    return outcome


def _ask_prediction(question: Question, quiet: bool) -> str:
    """Return the prediction: ask on a terminal until the reply is valid, else read a line of standard input."""
    if not question.ask:
        return ""
    if not _is_terminal():
        return question.parse_reply(_read_piped_line())
    if quiet:
        return ""
    expected_reply = "in words" if question.is_open else "a number"
    expected_reply = f"a-{LETTERS[len(question.choices) - 1]}" if question.choices else expected_reply
    while True:
        try:
            return question.parse_reply(input(f"your prediction ({expected_reply}; Enter to skip): "))
        except EOFError:
            print()
            return ""
        except UsageError as error:
            print_sanitized(f"  {error.message}")


def _choose_next(outcome: LessonResult, arguments: argparse.Namespace) -> str:
    """Print the next lesson and ask whether to continue; return its name, or empty to stop."""
    if arguments.json:
        return ""
    if not outcome.next:
        print_sanitized("\nYou have done all lessons.")
        return ""
    if not (_is_terminal() and sys.stdout.isatty()):
        print_sanitized(f"\nnext: lab learn {outcome.next}")
        return ""
    try:
        reply = input(f"\nnext: {sanitize_text(outcome.next)} (Enter to continue, q to end): ")
    except EOFError:
        print()
        return ""
    return "" if reply.strip() else outcome.next


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_piped_line() -> str:
    """Read a line of standard input, and wait only briefly for a pipe that is open but silent."""
    with suppress(OSError, ValueError):  # closed, or not a file that `select` supports
        ready = select.select([sys.stdin], [], [], _PIPE_WAIT_S)[0] if sys.stdin is not None else []
        return sys.stdin.readline(1000) if ready else ""
    return ""
