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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "scenario files, folders of them, or lessons as @NAME"
    shared.add_options(parser, "scenarios", type=Path, nargs="+", help=about, complete="scenarios")
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Check each scenario; return 2 if one is invalid."""
    findings: list[dict[str, Any]] = []
    for path in find_scenarios(arguments.scenarios):
        try:
            plan_all([open_scenario(path)], RunOptions(), {})
            findings.append({"path": str(path), "valid": True, "problem": ""})
        except UsageError as error:
            findings.append({"path": str(path), "valid": False, "problem": str(error)})
    print_answer(arguments, lambda: findings, lambda style: "\n".join(_line(finding, style) for finding in findings))
    return 0 if all(finding["valid"] for finding in findings) else 2


def _line(finding: dict[str, Any], style: Style) -> str:
    sign = style.paint("✔", "green") if finding["valid"] else style.paint("✘", "red")
    return f"{sign} {finding['problem'] or finding['path']}"
