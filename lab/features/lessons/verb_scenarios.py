"""`lab scenarios`: what there is to run."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.arguments import answer
from lab.errors import ScenarioError, UsageError
from lab.features.lessons.catalogue import read_path
from lab.features.lessons.question import question_of
from lab.report.style import Style
from lab.report.table import table_text
from lab.spec.backends import check_backend, lacking
from lab.spec.lessons import SIGN, lessons, library_folder
from lab.spec.load import find_scenarios, load_scenario
from lab.spec.scenario import Scenario
from lab.words import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        f"What is listed by name is a lesson: `lab learn NAME`, `lab run {SIGN}NAME`, `lab new --from NAME`."
    )
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        help="where to look (default: scenarios, and the lessons that come with the lab)",
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the catalogue, in the order of the learning path"
    )
    parser.add_argument(
        "--backend", metavar="NAME", help="say which of them can run on it, and why the others cannot: gloo, mpi, nccl"
    )
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them with what each teaches; one that is not valid is listed as such, and the exit code is then 2."""
    backend = check_backend(arguments.backend) if arguments.backend is not None else None
    folder = arguments.folder or library_folder()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "name one, or none for the lessons that come with the lab")
    one_folder = arguments.folder or arguments.markdown
    paths = find_scenarios([folder]) if one_folder else _in_order(chain(*lessons().values()))
    found: dict[Path, Scenario] = {}
    broken: dict[Path, str] = {}
    for path in paths:
        try:
            found[path] = load_scenario(path)
        except ScenarioError as error:
            broken[path] = error.message
    if arguments.markdown:
        from lab.features.lessons.catalogue import catalogue_text
        from lab.report.harmless import harmless

        print(harmless(catalogue_text(folder, found, read_path(folder))), end="")
    else:
        broken_json = [{"path": str(path), "name": "", "error": problem} for path, problem in broken.items()]
        answer(
            arguments,
            lambda: [*(_json(path, scenario, backend) for path, scenario in found.items()), *broken_json],
            lambda style: _table(found, broken, backend, style),
        )
    return 2 if broken else 0


def _table(found: dict[Path, Scenario], broken: dict[Path, str], backend: str | None, style: Style) -> str:
    names = _names([*found, *broken])
    reasons = {path: _lacking(scenario, backend) for path, scenario in found.items()}
    about = {path: reasons[path] if backend else s.learn.strip().split("\n")[0] for path, s in found.items()}
    rows = [[names[path], _size(scenario), about[path]] for path, scenario in found.items()]
    rows += [[names[path], "", problem] for path, problem in broken.items()]
    text = table_text(["scenario", "nodes x workers", f"not on {backend}" if backend else "learn"], rows, style)
    if not backend:
        return text
    able = sum(not reason for reason in reasons.values())
    return f"{text}\n\n{able} of {plural(len(found), 'scenario')} can run on {backend}"


def _lacking(scenario: Scenario, backend: str | None) -> str:
    """Why it cannot run on that backend, if one is asked about."""
    return lacking(backend, scenario.script, scenario.needed) if backend else ""


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """Those of the current folder first; the lessons that come with the lab in the order in which to learn them."""
    library = library_folder()
    order = [library / name for names in read_path(library).values() for name in names]
    return sorted(paths, key=lambda path: (order.index(path) + 1 if path in order else 0, path))


def _names(paths: Iterable[Path]) -> dict[Path, str]:
    """Each as a person names it: a lesson that comes with the lab by its name, anything else by its path."""
    library = library_folder()
    return {path: f"{SIGN}{path.stem}" if path.is_relative_to(library) else str(path) for path in paths}


def _size(scenario: Scenario) -> str:
    return f"{scenario.nodes or 'any'} x {scenario.nproc_per_node or 1}"


def _json(path: Path, scenario: Scenario, backend: str | None) -> dict[str, object]:
    question = question_of(scenario)
    return {
        "path": str(path),
        "name": scenario.name,
        "nodes": scenario.nodes,
        "nproc_per_node": scenario.nproc_per_node,
        "learn": scenario.learn,
        "predict": question.ask,
        "choices": list(question.choices),
        "verdict": scenario.expect.verdict,
        "error": "",
        **({"backend": backend, "lacking": _lacking(scenario, backend)} if backend else {}),
    }
