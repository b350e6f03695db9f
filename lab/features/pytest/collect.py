"""Scenarios as tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lab.errors import LabError
from lab.plan.fit import has_wishes
from lab.report.harmless import harmless
from lab.run.options import RunOptions
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario


class ScenarioFile(pytest.File):
    """A file that holds one scenario."""

    def collect(self) -> Iterable[ScenarioItem]:
        """The scenario; what is wrong with the file is said in the lab's words."""
        path = self.path
        if path.is_relative_to(Path.cwd()):
            path = Path(os.path.relpath(path))
        try:
            scenario = open_scenario(path)
        except LabError as error:
            raise self.CollectError(harmless(str(error))) from None
        yield ScenarioItem.from_parent(self, name=scenario.name, scenario=scenario)


class ScenarioItem(pytest.Item):
    """A scenario as a test."""

    def __init__(self, *, scenario: Scenario, **more: Any) -> None:
        super().__init__(**more)
        self.scenario = scenario
        self.add_marker(pytest.mark.lab)

    def runtest(self) -> None:
        """Run it, on the cluster that is large enough for all scenarios of the session."""
        from lab.features.pytest.lab_run import run_warm
        from lab.features.pytest.sections import failure_text

        try:
            result = run_warm(self, self.scenario, RunOptions(), at_least=_most_nodes(self.session))
        except LabError as error:
            _fail(harmless(str(error)))
        if not result.passed:
            _fail(failure_text(result))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands."""
        return self.path, None, f"scenario {self.name}"


def _fail(text: str) -> NoReturn:
    raise pytest.fail.Exception(text, pytrace=False) from None


def _most_nodes(session: pytest.Session) -> int:
    """Nodes of the largest scenario that shares a cluster with others."""
    shared = (item.scenario for item in session.items if isinstance(item, ScenarioItem))
    return max(scenario.nodes or 1 for scenario in shared if not has_wishes(scenario))
