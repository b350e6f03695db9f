"""Limits that a run reached are told at the end of its reason."""

from __future__ import annotations

from lab.diagnosis.reasons import render_limits
from lab.node.messages.agent import Limited

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
    assert told(reached) == (
        "; rank 1 wrote more than 256 MiB of output; the rest is dropped, 900 MB"
        "; the check wrote more than 64 MiB of notes; the rest is dropped, 2 kB"
    )


def test_limits_of_nodes_are_told_by_their_names():
    reached = [
        Limited(1.0, "node0", "r", None, "processes", 1024, 7),
        Limited(1.0, "node1", "r", None, "memory", 512 * MIB, 3),
    ]
    assert told(reached) == (
        "; node0 reached its limit of 1,024 processes and threads"
        "; processes on node1 were killed for lack of memory: its limit is 512 MiB"
    )


def test_of_a_trace_it_is_not_known_how_much_is_missing():
    waits = Limited(1.0, "node0", "r", 0, "trace that had not been taken yet", 128 * MIB, 0)
    assert told([waits]) == (
        "; rank 0 wrote more than 128 MiB of trace that had not been taken yet; the rest is dropped"
    )


def test_who_was_killed_for_the_disk_is_told_as_far_as_that_is_known():
    full = Limited(1.0, "node0", "r", 1, "disk", 1024 * MIB, 1_200_000_000)
    assert told([full]) == "; rank 1 wrote more than 1 GiB to the disk of node0, and was killed for it"
    assert told([full._replace(excess=700_000_000)]) == (
        "; rank 1 wrote 700 MB to the disk of node0, whose limit of 1 GiB was reached, and was killed for it"
    )
    assert told([full._replace(rank=None)]) == (
        "; the ranks of node0 wrote more than 1 GiB to the disk of node0, and were killed for it"
    )
    assert "somebody whom its agent cannot tell" in told([full._replace(rank=None, excess=0)])


def test_what_a_check_reaches_is_told_as_its_own():
    reached = [
        Limited(1.0, "node0", "r", -1, "processes", 256, 7),
        Limited(1.0, "node0", "r", -1, "memory", 512 * MIB, 3),
        Limited(1.0, "node0", "r", -1, "files in /tmp", 256 * MIB, 1),
    ]
    assert told(reached) == (
        "; the check on node0 reached its limit of 256 processes and threads"
        "; processes of the check on node0 were killed for lack of memory: its limit is 512 MiB"
        "; the check on node0 reached its limit of 256 MiB of files in /tmp"
    )
