"""Limits that a run reached are told at the end of its reason."""

from __future__ import annotations

from lab.diagnosis.reasons import render_limits
from lab.node.messages.agent import Limited
from tests.golden import golden

MIB = 1 << 20


def told(reached: list[Limited]) -> str:
    return "".join(f"; {clause}" for clause in render_limits(reached))


def test_nothing_is_said_where_no_limit_was_reached():
    assert told([]) == ""


def test_of_each_limit_the_last_word_counts():
    reached = [
        Limited(1.0, "node1", "r", 1, "output", 256 * MIB, 5),
        Limited(2.0, "node1", "r", 1, "output", 256 * MIB, 900_000_000),
        Limited(2.0, "node0", "r", -1, "notes", 64 * MIB, 2_000),
    ]
    assert told(reached) == (golden(1))


def test_limits_of_nodes_are_told_by_their_names():
    reached = [
        Limited(1.0, "node0", "r", None, "processes", 1024, 7),
        Limited(1.0, "node1", "r", None, "memory", 512 * MIB, 3),
    ]
    assert told(reached) == (golden(1))


def test_of_a_trace_it_is_not_known_how_much_is_missing():
    waits = Limited(1.0, "node0", "r", 0, "trace that its agent had not sent yet", 128 * MIB, 0)
    assert told([waits]) == (golden(1))


def test_who_was_killed_for_the_disk_is_told_as_far_as_that_is_known():
    full = Limited(1.0, "node0", "r", 1, "disk", 1024 * MIB, 1_200_000_000)
    assert told([full]) == golden(1)
    assert told([full._replace(excess=700_000_000)]) == (golden(2))
    assert told([full._replace(rank=None)]) == (golden(3))
    assert golden(4) in told([full._replace(rank=None, excess=0)])


def test_what_a_check_reaches_is_told_as_its_own():
    reached = [
        Limited(1.0, "node0", "r", -1, "processes", 256, 7),
        Limited(1.0, "node0", "r", -1, "memory", 512 * MIB, 3),
        Limited(1.0, "node0", "r", -1, "files in /tmp", 256 * MIB, 1),
    ]
    assert told(reached) == (golden(1))
