"""What is broken on purpose, as files and Python say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.features.faults.fault import START, Fault, When, fault_data, fault_sentence
from lab.features.faults.kinds.nodes import Kill, Start
from lab.spec.load import dump_scenario, load_scenario
from tests.golden import golden

FAULTS = (
    Fault(what=Kill(node="node2"), when=When(rank=0, note="step", equals=3)),
    Fault(what=Start(node="node2"), when=When(log="world_size is 2")),
    Fault(what=Kill(node="node1"), when=START),
)
TEXT = """script: s.py
faults:
- kill: node2
  when:
    rank: 0
    note: step
    equals: 3
- start: node2
  when:
    log: world_size is 2
- kill: node1
  when: start
"""


def test_faults_are_read_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("")
    (tmp_path / "s.yaml").write_text(TEXT)
    scenario = load_scenario(tmp_path / "s.yaml")
    assert scenario.extra["faults"] == FAULTS
    assert TEXT.partition("\n")[2] in dump_scenario(scenario)


def test_a_fault_is_told_in_words() -> None:
    assert [fault_sentence(fault_data(fault)) for fault in FAULTS] == [
        golden(1),
        golden(2),
        golden(3),
    ]


@pytest.mark.parametrize("damaged", [{}, {"when": 3}, {"stop": [1], "when": {"rank": "x", "log": None}}])
def test_a_damaged_fault_of_a_record_is_told_too(damaged: dict[str, object]) -> None:
    assert fault_sentence(damaged)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: When(rank=0), "alone is no trigger"),
        (lambda: When(note="a", log="b"), "one trigger, not log and note"),
        (lambda: When(log="b", equals=3), "compares a note"),
    ],
)
def test_what_is_no_fault_is_refused_in_python_too(make, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
