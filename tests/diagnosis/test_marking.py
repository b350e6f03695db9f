"""How diagnoses are marked, and that every labelled program says what is true of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.diagnosis.finding import Finding
from tests.diagnosis.marking import Answer, Mark, figures, mark
from tests.diagnosis.programs import Program, read_program, read_programs
from tests.golden import golden

pytestmark = pytest.mark.unit

BROKEN = """# kind: never_entered | failed
# rank: 1
# never: rank 2 was late
import time
time.sleep(3600)  # cause
all_reduce()
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    path = tmp_path / "sleeps.py"
    path.write_text(BROKEN)
    return read_program(path)


def answer(*findings: Finding, verdict: str = "hung", reason: str = "no end", culprit: int | None = 1) -> Answer:
    return Answer(verdict=verdict, reason=reason, culprit=culprit, findings=findings)


def right(**changes: object) -> Finding:
    facts = {"kind": "never_entered", "sentence": "Rank 1 never entered all_reduce #1.", "ranks": (1,)}
    return finding(**{**facts, "lines": ("sleeps.py:5", "sleeps.py:6"), **changes})


def finding(**facts: object) -> Finding:
    return SimpleNamespace(**{"ranks": (), "lines": (), **facts})  # type: ignore[return-value]


def test_the_head_and_the_marked_lines_of_a_program_are_read(program: Program) -> None:
    assert (program.kinds, program.culprits) == ({"never_entered", "failed"}, (frozenset({1}),))
    assert (program.innocent, program.causes, program.nodes) == ({0, 2}, ("sleeps.py:5",), 3)


def test_a_right_answer_is_right(program: Program) -> None:
    found = mark(program, answer(finding(kind="account", sentence="All is well."), right()))
    assert found.right


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (right(kind="mismatch"), {"kind": False}),
        (right(ranks=()), {"rank": False}),
        (right(ranks=(1, 2)), {"rank": False, "accused": (2,)}),
        (right(lines=("sleeps.py:6", "sleeps.py:5")), {"line": False}),
        (right(sentence="Rank 2 was late."), {}),
    ],
)
def test_what_is_wrong_in_an_answer_is_marked(program: Program, said: Finding, wrong: dict[str, object]) -> None:
    found = mark(program, answer(said))
    assert {name: getattr(found, name) for name in wrong} == wrong
    assert found.right == (said.sentence == "Rank 2 was late.")


def test_the_verdicts_culprit_counts_too(program: Program) -> None:
    found = mark(program, answer(right(), culprit=2))
    assert (found.rank, found.accused) == (False, (2,))
    assert not mark(program, answer(right(), culprit=None)).rank
    assert mark(program, answer(right(), culprit=None, verdict="passed")).rank


def test_statements_that_contradict_each_other_are_false(program: Program) -> None:
    said = "Ranks 1 and 2 never entered all_reduce #1. Rank 0 waited; ranks 2 and 3 waited in all_reduce #1 at x.py:3."
    assert mark(program, answer(right(sentence=said))).false == (golden(1),)
    assert not mark(
        program, answer(right(sentence=said.replace("waited in all_reduce #1 ", "waited in all_reduce #12 ")))
    ).false


def test_a_legal_program_must_pass_without_a_finding_that_speaks_of_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "legal.py"
    path.write_text("# allow: straggler\npass\n")
    legal = read_program(path)
    slow = finding(kind="straggler", sentence="Rank 1 was slow.", ranks=(1,))
    assert mark(legal, answer(slow, verdict="passed", culprit=None)).right
    assert mark(legal, answer(right(), verdict="passed", culprit=None)).false == (right().sentence,)
    assert mark(legal, answer(verdict="hung")).false == ("hung: no end",)


def test_figures_count_both_sorts(program: Program) -> None:
    one = Mark(kind=True, rank=False, line=True, accused=(0, 2), false=("x",))
    assert figures([program], {"sleeps": one}) == {
        "broken": 1, "right kind": 1, "right rank": 0, "right line": 1, "innocents accused": 2,
        "legal": 0, "legal without a false statement": 0, "false statements": 1,
    }  # fmt: skip


def test_there_are_enough_programs_and_each_says_what_is_true() -> None:
    programs = read_programs()
    assert len({program.name for program in programs}) == len(programs)
    assert sum(not program.legal for program in programs) >= 60
    assert sum(program.legal for program in programs) >= 16
    for program in programs:
        assert program.legal == (program.path.parent.name == "legal"), program.name
        assert program.legal or program.causes, f"{program.name}: no line is marked as the cause"
        assert not program.innocent & frozenset().union(*program.culprits), program.name
        assert program.innocent <= set(range(program.nodes)), program.name
