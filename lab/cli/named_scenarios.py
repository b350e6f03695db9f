"""The scenarios that a command names, with the arguments and variables that it adds to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.spec.load import find_scenarios, open_scenario
from lab.spec.scenario import Scenario


def named_scenarios(paths: Sequence[Path], args: Sequence[str], env: Mapping[str, str]) -> list[Scenario]:
    """Every scenario of these files, folders and lessons; `args` and `env` come after its own.

    Raises:
        ScenarioError: one is not valid.
    """
    scenarios = map(open_scenario, find_scenarios(paths))
    return [replace(one, args=(*one.args, *args), env={**one.env, **env}) for one in scenarios]
