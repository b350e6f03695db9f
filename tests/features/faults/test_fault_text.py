"""Faults outside of scenarios are read as those in them, and refused with a line for each problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import ScenarioError
from lab.features.faults.fault import Fault, When, kind_data, kind_of, named_faults, parse_fault, parse_kind
from lab.features.faults.kinds.nodes import Kill
from tests.golden import golden

KILL = Fault(what=Kill(node="node2"), when=When(rank=2, op="all_reduce", count=3), for_s=2.0)
TEXT = "kill: node2, when: {rank: 2, op: all_reduce, count: 3}, for: 2s"


@pytest.mark.parametrize("text", [TEXT, f"{{{TEXT}}}", f"  {{ {TEXT} }}"])
def test_a_fault_is_read_with_and_without_braces(text: str) -> None:
    assert parse_fault(text) == KILL


def test_a_file_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(f"- {{{TEXT}}}\n")
    assert named_faults([str(tmp_path / "list.yaml"), TEXT]) == (KILL, KILL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kil: node2, when: start", "unknown key 'kil' \\(did you mean 'kill'"),
        ("kill: node2", "which has no `when`"),
        ("kill: [", "not valid YAML"),
        ("", "which has no `when`"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_fault(text)


def test_a_file_without_faults_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("script: s.py\n")
    with pytest.raises(ScenarioError, match=golden(1)):
        named_faults([str(tmp_path / "s.yaml")])


def test_a_kind_comes_back_from_its_data_and_from_words() -> None:
    assert kind_of(kind_data(Kill(node="node2"))) == Kill(node="node2") == parse_kind("kill", "node2")
