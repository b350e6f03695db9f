"""Among fourteen submissions one is hostile: the other thirteen get the verdicts that they get without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.run.options import RunOptions
from lab.spec.scenario import Expect, Scenario
from tests.engines.conftest import SCRIPTS, scenario_of

HERE = Path(__file__).parent / "scripts"
GRADED = Expect(check="grade.py:check")
HONEST = {
    "right": ("passed", None),
    "wrong": ("failed", None),
    "raises": ("failed", 1),
    "exits": ("failed", 0),
    "hangs": ("hung", 1),
}
"""What becomes of honest submissions: their verdict, and the rank that it names."""
SUBMITTED = ["right", "wrong", "raises", "right", "exits", "right", "right", "hangs", "right", "wrong"]
SUBMITTED += ["right", "raises", "right"]
HOSTILE: dict[str, tuple[Path, list[object]]] = {
    "statements": (SCRIPTS / "hostile.py", ["statements"]),
    "traces": (SCRIPTS / "hostile.py", ["traces"]),
    "escapes": (SCRIPTS / "hostile.py", ["escapes"]),
    "folders": (SCRIPTS / "hostile.py", ["folders", 3000]),
    "output": (HERE / "floods.py", ["output", 200_000_000]),
    "notes": (HERE / "floods.py", ["notes", 80_000_000]),
    "memory": (HERE / "floods.py", ["memory", 0]),
    "bomb": (HERE / "floods.py", ["bomb", 0]),
    "agent": (HERE / "attempts.py", []),
    "forges": (HERE / "forges.py", []),
    "leaves": (HERE / "leaves.py", []),
    "fill": (HERE / "assaults.py", ["fill"]),
    "outlast": (HERE / "assaults.py", ["outlast"]),
    "listen": (HERE / "assaults.py", ["listen"]),
    "threads": (HERE / "assaults.py", ["threads"]),
    "crash": (HERE / "assaults.py", ["crash"]),
    "shared": (HERE / "assaults.py", ["shared"]),
}


def submission(how: str) -> Scenario:
    return scenario_of(HERE / "honest.py", how, expect=GRADED, timeout_s=6.0 if how == "hangs" else 60.0)


def hostile(kind: str) -> Scenario:
    script, words = HOSTILE[kind]
    return replace(scenario_of(script, *words, timeout_s=10.0), name=f"hostile-{kind}")


@pytest.mark.long
@pytest.mark.docker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
@pytest.mark.parametrize("kind", HOSTILE)
def test_thirteen_honest_submissions_have_their_verdicts_whatever_the_fourteenth_does(
    kind: str, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(nodes=2, memory_bytes=1 << 30, processes=400)
    submitted = [submission(how) for how in SUBMITTED]
    place = list(HOSTILE).index(kind) % len(submitted)
    submitted.insert(place, hostile(kind))

    outcomes = cluster.run_all(submitted, options=RunOptions(nodes=2, runs=tmp_path / "runs", output_bytes=16 << 20))

    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    assert len(results) == len(submitted), outcomes
    del results[place]
    verdicts = [(result.verdict, result.culprit.rank if result.culprit else None) for result in results]
    assert verdicts == [HONEST[how] for how in SUBMITTED], [result.reason for result in results]
