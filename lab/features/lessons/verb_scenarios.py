"""`lab scenarios`: list the scenarios that can be run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.errors import ScenarioError, UsageError
from lab.feature import find_hook
from lab.features.lessons.question import scenario_question
from lab.report.style import Style, table_text
from lab.spec.keys import check_backend
from lab.spec.load import SIGN, find_scenarios, library_folder, list_lessons, load_scenario
from lab.spec.scenario import Scenario
from lab.words import format_count

PATH_FILE = "learning-path.txt"
"""A file in a folder of scenarios: lines `# Chapter`, then one scenario per line, in the order in which to learn them.
"""


def read_chapters(folder: Path) -> dict[str, list[str]]:
    """Read the learning path of a folder: chapter -> scenario files, in order; empty if the folder has no path.

    Raises:
        ScenarioError: A scenario comes before the first chapter.
    """
    file = folder / PATH_FILE
    if not file.exists():
        return {}
    chapters: dict[str, list[str]] = {}
    names: list[str] | None = None
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("#"):
            names = chapters.setdefault(text.lstrip("# "), [])
        elif text:
            if names is None:
                raise ScenarioError(f"{file}:{number}:1: {text} comes before the first chapter (`# Name`)")
            names.append(text)
    return chapters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"A name in the list is a lesson: `lab learn NAME`, `lab run {SIGN}NAME`, `lab new --from NAME`"
    about = "folder of scenarios (default: scenarios, and the lessons that come with the lab)"
    parser.add_argument("folder", type=Path, nargs="?", help=about)
    about = "show which scenarios can run on this backend, and why others cannot: gloo, mpi, or nccl"
    shared.add_options(parser, "--backend", help=about)
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """List scenarios with what each one teaches; return 2 if one of them is not valid."""
    backend = check_backend(arguments.backend) if arguments.backend is not None else None
    folder = arguments.folder or library_folder()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "name an existing one, or none for the lab's own lessons")
    if arguments.folder:
        paths = find_scenarios([folder])
    else:  # those of the current folder first, then the lab's lessons in the order of the learning path
        order = [folder / name for names in read_chapters(folder).values() for name in names]
        files = chain(*list_lessons().values())
        paths = sorted(files, key=lambda path: (order.index(path) + 1 if path in order else 0, path))
    rows: list[dict[str, Any]] = []
    for path in paths:
        try:
            rows.append(_scenario_json(path, load_scenario(path), backend))
        except ScenarioError as error:
            rows.append({"path": str(path), "name": "", "error": error.message})
    rows.sort(key=lambda row: row["error"] != "")
    shared.print_answer(arguments, lambda: rows, lambda style: _scenarios_text(rows, backend, style))
    return 2 if any(row["error"] for row in rows) else 0


def _scenarios_text(rows: Sequence[Mapping[str, Any]], backend: str | None, style: Style) -> str:
    library, table_rows, valid = library_folder(), [], [row for row in rows if not row["error"]]
    for row in rows:
        path, size, about = Path(row["path"]), "", row["error"]
        if not about:
            size = f"{row['nodes'] or 'any'} x {row['nproc_per_node'] or 1}"
            about = row["lacking"] if backend else row["learn"].strip().split("\n")[0]
        # a lesson of the lab is listed by its name, any other scenario by its path
        table_rows.append([f"{SIGN}{path.stem}" if path.is_relative_to(library) else row["path"], size, about])
    text = table_text(["scenario", "nodes x workers", f"not on {backend}" if backend else "learn"], table_rows, style)
    able, total = sum(not row.get("lacking") for row in valid), format_count(len(valid), "scenario")
    return f"{text}\n\n{able} of {total} can run on {backend}" if backend else text


def _scenario_json(path: Path, scenario: Scenario, backend: str | None) -> dict[str, Any]:
    question, find_lacking = scenario_question(scenario), find_hook("lacking")
    return {
        "path": str(path),
        **{name: getattr(scenario, name) for name in ("name", "nodes", "nproc_per_node", "learn")},
        "predict": question.ask,
        "choices": list(question.choices),
        "verdict": scenario.expect.verdict,
        "error": "",
        **({"backend": backend, "lacking": find_lacking(scenario, backend) if find_lacking else ""} if backend else {}),
    }
