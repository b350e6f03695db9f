"""The scenarios that a command names, with the arguments and variables that it adds to each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.cli import arguments as shared
from lab.spec.load import find_scenarios, open_scenario
from lab.spec.scenario import Scenario


def add_scenarios(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the scenarios that a verb runs, and what follows -- for their scripts."""
    parser.usage = f"lab {verb} SCENARIO.yaml | SCRIPT.py | FOLDER | @LESSON ... [options] [-- SCRIPT ARGUMENTS]"
    named = parser.add_argument(
        "scenarios",
        type=Path,
        nargs="+",
        help="scenarios (YAML), scripts, folders of scenarios, or lessons as @NAME, such as @scatter",
    )
    shared.completes(named, "scenarios")
    parser.set_defaults(rest=[])


def named_scenarios(paths: Sequence[Path], args: Sequence[str], env: Mapping[str, str]) -> list[Scenario]:
    """Every scenario of these files, folders and lessons; `args` and `env` come after its own.

    Raises:
        ScenarioError: one is not valid.
    """
    scenarios = map(open_scenario, find_scenarios(paths))
    return [replace(one, args=(*one.args, *args), env={**one.env, **env}) for one in scenarios]
