"""`lab learn`: a lesson: a question, a prediction, the run, and whether the prediction held; and where one stands."""

from __future__ import annotations

import argparse
import json
import select
import sys
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.arguments import print_answer, print_sanitized
from lab.cluster import Cluster
from lab.errors import UsageError
from lab.features.lessons import progress
from lab.features.lessons.progress import kept_of, path_json, path_text, summary_json, summary_text
from lab.features.lessons.question import LETTERS, Question
from lab.features.lessons.take import Lesson, Taken, learn, question_text, taken_text
from lab.report.live import LiveOutput
from lab.report.sanitize import sanitize_text
from lab.report.style import style_for
from lab.run.options import RunOptions

_PIPE_WAIT_S = 2.0
"""How long a line is waited for where standard input is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab learn [LESSON | --next | --summary] [options]"
    parser.epilog = (
        "Without a lesson it shows the learning path and what of it is done. Progress is kept in a file for each "
        f"person; {progress.FOLDER_VARIABLE} names a folder for it that a class on one machine shares."
    )
    about = "its name, such as scatter, or a scenario's file"
    shared.add_options(parser, "scenario", metavar="LESSON", nargs="?", help=about, complete="lessons")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--next", action="store_true", help="take the first lesson of the path that is not done")
    which.add_argument("--summary", action="store_true", help="show everybody's lessons, and what was predicted")
    parser.add_argument("--folder", type=Path, help="where to look (default: scenarios, then the lab's own lessons)")
    parser.add_argument("--as", dest="person", metavar="NAME", help="whose progress it is (default: the user's)")
    shared.add_options(parser, "--nodes", "--nproc-per-node")
    parser.add_argument("--answer", metavar="TEXT", help="your prediction, instead of being asked for it")
    shared.add_options(parser, "--name", "--engine", "--wait", "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Ask, run, reveal, go on; the exit code is that of the worst verdict."""
    path, person = progress.learning_path(arguments.folder), progress.person_of(arguments.person)
    if arguments.scenario and (arguments.next or arguments.summary):
        option = "--next" if arguments.next else "--summary"
        raise UsageError(f"{option} and the lesson {arguments.scenario} do not go together", "leave one of them out")
    if arguments.summary:
        everyone = progress.kept_of_all() if arguments.person is None else [kept_of(person)]
        return print_answer(
            arguments, lambda: summary_json(path, everyone), lambda style: summary_text(path, everyone, style)
        )
    name = arguments.scenario
    if name is None:
        kept = kept_of(person)
        name = then = path.next_after("", kept.standing)
        if not arguments.next or not name:
            return print_answer(
                arguments, lambda: path_json(path, kept, then), lambda style: path_text(path, kept, then, style)
            )
    worst, said = 0, arguments.answer
    while name:
        lesson = learn(name, person=person, folder=arguments.folder)
        taken = _take(lesson, said, arguments)
        worst = max(worst, taken.result.exit_code)
        name, said = _go_on(taken, arguments), None
    return worst


def _take(lesson: Lesson, said: str | None, arguments: argparse.Namespace) -> Taken:
    style, question = style_for(sys.stdout), lesson.question
    if said is not None:
        said = question.understand(said)
    if not arguments.json:
        print_sanitized(question_text(lesson, style))
    if said is None:
        said = _ask(question, arguments.json)
    if not arguments.json:
        print(flush=True)
    live = LiveOutput(sys.stdout, sys.stderr, quiet=arguments.json)
    options = RunOptions(**shared.field_values(RunOptions, arguments))
    cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=live.progress)
    try:
        taken = lesson.take(said, cluster, observer=live, options=options)
    finally:
        live.finish()
    if arguments.json:
        print(json.dumps(taken.to_json()))
    else:
        print_sanitized(f"\n{taken_text(taken, style)}")
    return taken


def _ask(question: Question, quiet: bool) -> str:
    """What is predicted: asked for on a terminal until it is understood, elsewhere a line of standard input."""
    if not question.ask:
        return ""
    if not _is_terminal():
        return question.understand(_line_of_pipe())
    if quiet:
        return ""
    wanted = "in words" if question.open else "a number"
    wanted = f"a-{LETTERS[len(question.choices) - 1]}" if question.choices else wanted
    while True:
        try:
            return question.understand(input(f"your prediction ({wanted}; Enter to skip): "))
        except EOFError:
            print()
            return ""
        except UsageError as error:
            print_sanitized(f"  {error.message}")


def _go_on(taken: Taken, arguments: argparse.Namespace) -> str:
    """The lesson to go on with, if the person wants that; says which one it would be."""
    if arguments.json:
        return ""
    if not taken.next:
        print_sanitized("\nThat was all of them.")
        return ""
    if not (_is_terminal() and sys.stdout.isatty()):
        print_sanitized(f"\nnext: lab learn {taken.next}")
        return ""
    try:
        reply = input(f"\nnext: {sanitize_text(taken.next)} (Enter to go on, q to end): ")
    except EOFError:
        print()
        return ""
    return "" if reply.strip() else taken.next


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _line_of_pipe() -> str:
    """A line of standard input, if there is one; who holds a pipe open and writes nothing is not waited for long."""
    try:
        ready = select.select([sys.stdin], [], [], _PIPE_WAIT_S)[0] if sys.stdin is not None else []
        return sys.stdin.readline(1000) if ready else ""
    except (OSError, ValueError):  # closed, or nothing that the kernel knows
        return ""
