"""A scenario from whatever a person names: a YAML file or a plain script."""

from __future__ import annotations

from pathlib import Path

from lab.spec.load import load_scenario, scenario_from_script
from lab.spec.scenario import Scenario

SCRIPT_TIMEOUT_S = 600.0
"""A plain script says nothing of how long it may take: longer than a scenario by default."""


def open_scenario(path: Path) -> Scenario:
    """The scenario in a YAML file, or that of a plain script.

    Raises:
        ScenarioError: it is not valid.
    """
    if path.suffix == ".py":
        return scenario_from_script(path, timeout_s=SCRIPT_TIMEOUT_S)
    return load_scenario(path)
