"""Labelled programs are told rightly: broken ones by kind, rank and line, legal ones by no false statement.

`dev/score` runs all of them and gives figures; the programs and what is true of them are in `tests/diagnosis`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Cluster
from tests.diagnosis.marking import mark
from tests.diagnosis.programs import Program, read_programs
from tests.diagnosis.score import ask

QUICK = {
    "assertion",
    "groups_in_opposite_orders",
    "groups_made_again",
    "remade_on_one_rank",
    "skips_new_group",
    "tags_differ",
}
"""They show what no other test here shows, and take no long time; all others are for the night."""


def _parameters() -> list[object]:
    programs = {program.name: program for program in read_programs()}
    assert programs.keys() >= QUICK
    return [pytest.param(program, id=name, marks=_marks(name)) for name, program in programs.items()]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.long]


@pytest.mark.local_first
@pytest.mark.parametrize("program", _parameters())
def test_a_program_is_diagnosed_rightly(program: Program, cluster: Cluster, tmp_path: Path) -> None:
    found = mark(program, ask(program, cluster, tmp_path))
    assert found.right, found
