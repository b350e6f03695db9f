"""`lab validate`: check scenarios without running them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lab.cli import arguments as shared
from lab.errors import UsageError
from lab.report.style import style_for
from lab.run.options import RunOptions, plan_all
from lab.spec.find import find_scenarios
from lab.spec.load import open_scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `lab validate` takes."""
    parser.add_argument("scenarios", type=Path, nargs="+", help="scenario files, or folders of them")
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check each; 2 if one is not valid."""
    findings = []
    for path in find_scenarios(arguments.scenarios):
        try:
            plan_all([open_scenario(path)], RunOptions(), {})
            findings.append({"path": str(path), "valid": True, "problem": ""})
        except UsageError as error:
            findings.append({"path": str(path), "valid": False, "problem": str(error)})
    if arguments.json:
        print(json.dumps(findings))
    else:
        style = style_for(sys.stdout)
        for finding in findings:
            sign = style.paint("✔", "green") if finding["valid"] else style.paint("✘", "red")
            print(f"{sign} {finding['problem'] or finding['path']}")
    return 0 if all(finding["valid"] for finding in findings) else 2
