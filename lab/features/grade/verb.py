"""`lab grade`: run many submissions as one scenario's script, and print what each of them earns.

A submission is a file NAME.py, a file NAME.zip, or a folder NAME in DIR. It replaces the scenario's
script, on nodes that reach no other network. `grade: points:` in the scenario sets what it can earn.

Examples:
  lab grade submissions --scenario assignment/ring.yaml
  lab grade submissions --scenario assignment/ring.yaml --csv grades.csv --html feedback
  lab grade submissions --scenario assignment/ring.yaml --json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab.cli import arguments as shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of submissions")
    about = "scenario of the assignment (default: the only YAML file in DIR)"
    shared.add_options(parser, "--scenario", type=Path, metavar="FILE", help=about, complete="scenarios")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a table for spreadsheets")
    parser.add_argument("--html", type=Path, metavar="FOLDER", help="write an overview, and a page per submission")
    parser.add_argument("-j", "--jobs", type=shared.positive, default=1, metavar="N", help="use N clusters in parallel")
    parser.add_argument("--trust", action="store_true", help="grade without isolation; every result says so")
    shared.add_options(parser, "--engine", help="engine that provides the nodes")
    shared.add_options(parser, "--nodes", "--nproc-per-node", "--cold", "--timeout")
    shared.add_options(parser, "--max-output", "--cpus", "--memory", "--max-processes", "--disk", "--image", "--pull")
    shared.add_options(parser, "--runs", "--json")
    parser.add_argument("--quiet", "-q", action="store_true", help="print the table only")


def run(arguments: argparse.Namespace) -> int:
    """Grade all submissions; return 0 if every submission has a grade, whatever it is."""
    from lab.features.grade.grades import Grade
    from lab.features.grade.run import Grader
    from lab.features.grade.view import grades_csv, grades_text, progress_line, write_grades
    from lab.features.html.write import write_page
    from lab.report.style import style_for
    from lab.run.options import RunOptions

    asked = {name: getattr(arguments, name) for name in ("cpus", "memory_bytes", "processes", "disk_bytes", "image")}
    quiet, style = bool(arguments.quiet or arguments.json), style_for(sys.stderr)
    with shared.Progress(quiet=quiet) as display:

        def show(grade: Grade, done: int, of: int) -> None:
            display.line(progress_line(grade, done, of, style, max(len(one.name) for one in grader.submissions)))

        grader = Grader(
            arguments.folder,
            arguments.scenario,
            arguments.engine,
            trust=arguments.trust,
            requested={name: value for name, value in asked.items() if value},
            options=RunOptions(**shared.field_values(RunOptions, arguments)),
            jobs=arguments.jobs,
            announce=display.announce,
            on_graded=show,
        )
        grades, failure = grader.grade()
    written = []
    if arguments.csv:
        write_page(grades_csv(grades).encode("utf-8", "backslashreplace"), arguments.csv)
        written.append(arguments.csv)
    if arguments.html:
        written.append(write_grades(grades, arguments.html)[0])
    files = "".join(f"\n  {path}" for path in written)
    shared.print_answer(arguments, grades.to_json, lambda style: f"{grades_text(grades, style)}{files}")
    if failure is not None:
        raise failure
    return 0 if all(one.is_graded for one in grades.grades) else 1
