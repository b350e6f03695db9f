"""`lab validate`: check scenarios without running them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.cli.arguments import print_answer
from lab.errors import UsageError
from lab.report.style import Style
from lab.run.options import RunOptions, plan_all
from lab.spec.load import find_scenarios, open_scenario

_PROBLEM = ("file", "line", "column", "message")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "scenario files, folders of them, or lessons as @NAME"
    shared.add_options(parser, "scenarios", type=Path, nargs="+", help=about, complete="scenarios")
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Check each scenario; return 2 if one is invalid."""
    findings: list[dict[str, Any]] = []
    for path in find_scenarios(arguments.scenarios):
        problem, problems = "", list[dict[str, Any]]()
        try:
            plan_all([open_scenario(path)], RunOptions(), {})
        except UsageError as error:
            problem, positions = str(error), getattr(error, "problems", ()) or [(None, None, str(error))]
            problems = [dict(zip(_PROBLEM, (str(path), *one), strict=True)) for one in positions]
        findings.append({"path": str(path), "valid": not problem, "problem": problem, "problems": problems})
    print_answer(arguments, lambda: findings, lambda style: "\n".join(_line(finding, style) for finding in findings))
    return 0 if all(finding["valid"] for finding in findings) else 2


def _line(finding: dict[str, Any], style: Style) -> str:
    sign = style.paint("✔", "green") if finding["valid"] else style.paint("✘", "red")
    return f"{sign} {finding['problem'] or finding['path']}"
