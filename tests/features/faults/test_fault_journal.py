"""What was broken and not undone is known to whoever comes next, whatever happened to whoever broke it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.faults.fault import kind_data
from lab.features.faults.injection import BEGUN, BY_HAND, HEALING, FaultJournal
from lab.features.faults.kinds.nodes import Kill


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultJournal:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return FaultJournal("fake", "c")


def begin(journal: FaultJournal, identity: str, node: str, by: str, until: float | None = None) -> None:
    what = Kill(node=node)
    begun = {"what": kind_data(what), "said": str(what), "by": by, "since": 0.0, "until": until}
    journal.write(identity, **begun, state=BEGUN)


def test_what_was_begun_stands_until_it_is_undone_and_then_there_is_no_file(journal: FaultJournal) -> None:
    assert not journal.path.exists()
    begin(journal, "first", "node1", BY_HAND)
    begin(journal, "second", "node2", "run-1", 5.0)
    journal.write("first", state=HEALING)
    other = FaultJournal("fake", "c")  # of another command
    assert [(one.id, one.what, one.state, one.by, one.until) for one in other.standing()] == [
        ("first", Kill(node="node1"), HEALING, BY_HAND, None),
        ("second", Kill(node="node2"), BEGUN, "run-1", 5.0),
    ]
    assert other.in_force() == [Kill(node="node2")]
    other.write("second")
    assert [one.id for one in journal.standing()] == ["first"]
    journal.write("first")
    assert not other.path.exists()
    assert other.standing() == []


def test_a_kind_that_is_not_known_is_no_obstacle_nor_is_another_format(journal: FaultJournal) -> None:
    begin(journal, "known", "node1", BY_HAND)
    begin(journal, "unknown", "node2", BY_HAND)
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"kill": "node2"', b'"melt": "node2"'))
    assert [one.what for one in FaultJournal("fake", "c").standing()] == [Kill(node="node1"), None]
    journal.path.write_bytes(b'{"id": "y", "wh')
    assert journal.standing() == []
