"""The scenario library notices mistakes: scripts are made wrong on purpose, and the run has to say what is wrong.

A row changes one place of a script in a way in which people get it wrong: another source, another operation, one too
few, a factor forgotten, padding left in; the rows are in the folder `mutations`. What a scenario expects is the same on
every engine, so all of this runs on the local one only.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.record.result import Expectation
from lab.spec.load import load_scenario
from tests.engines.lessons import FILES, LIBRARY
from tests.engines.mutations import collectives, messages, training
from tests.engines.mutations.kinds import ANYTHING_ELSE, Calls, Check, Hangs, Mutation, Note, Raises

FOLDERS = {
    "scatter", "collectives", "point_to_point", "groups", "gradients", "metrics", "ddp", "beyond_ddp", "checkpoints"
}  # fmt: skip
"""Of each lesson in these, a mistake must show."""
HANGS_AFTER_S = 5.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for each rank: all of them share the cores of this machine
MUTATIONS = {**collectives.MUTATIONS, **messages.MUTATIONS, **training.MUTATIONS}
ROWS = [pytest.param(name, row, id=f"{name}-{i}") for name, rows in MUTATIONS.items() for i, row in enumerate(rows)]


def test_every_lesson_has_a_mistake_that_shows_in_what_it_states() -> None:
    covered = {name for name, rows in MUTATIONS.items() if any(isinstance(row.must, Note | Calls) for row in rows)}
    assert {name for name in FILES if name.split("/")[0] in FOLDERS} - covered == set(), "add a row for each of these"
    assert set(MUTATIONS) <= set(FILES)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize(("name", "mutation"), ROWS)
def test_a_mistake_does_not_pass(name: str, mutation: Mutation, cluster: Cluster, tmp_path: Path) -> None:
    lesson = tmp_path / "mutated" / Path(name).name
    shutil.copytree((LIBRARY / name).parent, lesson.parent, ignore=shutil.ignore_patterns(".lab", "__pycache__"))
    script = lesson.with_suffix(".py")
    text = script.read_text(encoding="utf-8")
    assert text.count(mutation.old) == mutation.times, f"{script.name} has changed: {mutation.old!r}"
    script.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")

    scenario = replace(load_scenario(lesson.with_suffix(".yaml")), env=ONE_THREAD)
    timeout_s = HANGS_AFTER_S if isinstance(mutation.must, Hangs) else None
    result = cluster.run(scenario, runs=tmp_path / "runs", timeout_s=timeout_s)

    _assert_outcome(result, mutation.must)


def _assert_outcome(result: Result, must: Note | Calls | Check | Raises | Hangs) -> None:
    assert result.verdict == ("hung" if isinstance(must, Hangs) else "failed"), result.reason
    if isinstance(must, Note):
        unmet = _unmet(result, must.rank, f"note {must.name}")
        assert unmet.expected == must.expected
        assert must.got is ANYTHING_ELSE or unmet.got == must.got
        says = f"rank {must.rank}: note {must.name}: expected {unmet.expected!r}, got {unmet.got!r}"
        assert result.reason.startswith(says), result.reason
    else:
        assert must.says in result.reason
    if isinstance(must, Calls):
        assert result.reason.startswith(f"rank {must.rank}: calls: "), result.reason
    if isinstance(must, Check):
        assert must.says in _unmet(result, None, "check").got
    if isinstance(must, Raises):
        assert result.culprit is not None
        assert result.reason.startswith(f"rank {result.culprit.rank} "), result.reason


def _unmet(result: Result, rank: int | None, what: str) -> Expectation:
    unmet = [item for item in result.expectations if not item.met and item.rank == rank]
    found = [item for item in unmet if item.what == what or (what == "check" and item.what.startswith("check "))]
    assert len(found) == 1, result.reason
    return found[0]
