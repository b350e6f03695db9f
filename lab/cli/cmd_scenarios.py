"""`lab scenarios`: what there is to run."""

from __future__ import annotations

import argparse
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.errors import ScenarioError, UsageError
from lab.report.style import Style
from lab.report.table import table_text
from lab.spec.load import find_scenarios, load_scenario
from lab.spec.scenario import Scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("scenarios"), help="where to look (default: scenarios)"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the catalogue, in the order of the learning path"
    )
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them with what each teaches; one that is not valid is listed as such, and the exit code is then 2."""
    if not arguments.folder.is_dir():
        raise UsageError(f"there is no folder {arguments.folder}", "name one: `lab scenarios FOLDER`")
    found: dict[Path, Scenario] = {}
    broken: dict[Path, str] = {}
    for path in find_scenarios([arguments.folder]):
        try:
            found[path] = load_scenario(path)
        except ScenarioError as error:
            broken[path] = error.message
    if arguments.markdown:
        from lab.report.catalogue import catalogue_text, read_path
        from lab.report.harmless import harmless

        print(harmless(catalogue_text(arguments.folder, found, read_path(arguments.folder))), end="")
    else:
        broken_json = [{"path": str(path), "name": "", "error": problem} for path, problem in broken.items()]
        answer(
            arguments,
            lambda: [*(_json(path, scenario) for path, scenario in found.items()), *broken_json],
            lambda style: _table(found, broken, style),
        )
    return 2 if broken else 0


def _table(found: dict[Path, Scenario], broken: dict[Path, str], style: Style) -> str:
    rows = [[str(path), _size(s), s.learn.strip().split("\n")[0]] for path, s in found.items()]
    rows += [[str(path), "", problem] for path, problem in broken.items()]
    return table_text(["scenario", "nodes x workers", "learn"], sorted(rows), style)


def _size(scenario: Scenario) -> str:
    return f"{scenario.nodes or 'any'} x {scenario.nproc_per_node or 1}"


def _json(path: Path, scenario: Scenario) -> dict[str, object]:
    return {
        "path": str(path),
        "name": scenario.name,
        "nodes": scenario.nodes,
        "nproc_per_node": scenario.nproc_per_node,
        "learn": scenario.learn,
        "predict": scenario.predict,
        "verdict": scenario.expect.verdict,
        "error": "",
    }
