"""What was broken and not undone is known to whoever comes next, whatever happened to whoever broke it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lab.features.faults.injection import BY_HAND, HEALING, IN_FORCE, UNDONE, FaultJournal
from lab.features.faults.kinds.nodes import Kill


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultJournal:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return FaultJournal("fake", "c")


def test_what_was_begun_stands_until_it_is_undone_and_then_there_is_no_file(journal: FaultJournal) -> None:
    assert not journal
    first = journal.begin(Kill(node="node1"), BY_HAND)
    second = journal.begin(Kill(node="node2"), "run-1", 5.0)
    journal.write_state(first, IN_FORCE)
    other = FaultJournal("fake", "c")  # of another command
    assert [(one.what, one.state, one.by, one.until) for one in other.standing()] == [
        (Kill(node="node1"), IN_FORCE, BY_HAND, None),
        (Kill(node="node2"), "begun", "run-1", 5.0),
    ]
    other.write_state(second, UNDONE)
    assert [one.id for one in journal.standing()] == [first]
    journal.write_state(first, HEALING)
    assert [one.state for one in other.standing()] == [HEALING]
    journal.write_state(first, UNDONE)
    assert not other
    assert other.standing() == []


def test_a_line_that_was_cut_and_a_kind_that_is_not_known_are_no_obstacle(journal: FaultJournal) -> None:
    journal.begin(Kill(node="node1"), BY_HAND)
    whole = journal.path.read_bytes()
    unknown = whole.replace(b'"kill": "node1"', b'"melt": "node1"').replace(b'"id": "', b'"id": "x')
    journal.path.write_bytes(whole + unknown + b'{"id": "y", "wh')
    assert [one.what for one in FaultJournal("fake", "c").standing()] == [Kill(node="node1"), None]


def test_many_may_write_at_once(journal: FaultJournal) -> None:
    def come_and_go() -> None:
        for _ in range(20):
            mine = FaultJournal("fake", "c")
            mine.write_state(mine.begin(Kill(node="node1"), BY_HAND), UNDONE)

    kept = journal.begin(Kill(node="node2"), BY_HAND)
    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.id for one in journal.standing()] == [kept]
    journal.write_state(kept, UNDONE)
    assert not journal
