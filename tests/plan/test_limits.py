"""What a node may use where nobody says."""

from __future__ import annotations

from lab.plan.limits import Limits, Machine, limits_for
from tests.golden import golden

GIB = 1 << 30


def test_nodes_share_most_of_the_memory_of_their_machine():
    machine = Machine(cores=4, memory_bytes=20 * GIB)
    assert limits_for(4, Limits(), machine) == Limits(
        memory_bytes=4 * GIB, processes=512 + 4 * 256, disk_bytes=16 * GIB
    )
    assert limits_for(1, Limits(), machine).memory_bytes == 16 * GIB


def test_many_nodes_get_what_one_needs_to_start_and_never_more_than_there_is():
    assert limits_for(100, Limits(), Machine(cores=1, memory_bytes=20 * GIB)).memory_bytes == GIB
    assert limits_for(1, Limits(), Machine(cores=1, memory_bytes=GIB // 2)).memory_bytes == GIB // 2


def test_nodes_share_half_of_what_is_free_on_the_disk_of_their_machine():
    machine = Machine(cores=1, memory_bytes=GIB, free_disk_bytes=81 * GIB)
    assert limits_for(4, Limits(), machine).disk_bytes == 10 * GIB
    assert limits_for(100, Limits(), machine).disk_bytes == GIB


def test_what_was_asked_for_wins():
    machine = Machine(cores=4, memory_bytes=20 * GIB)
    asked = Limits(memory_bytes=64 * GIB, processes=7, disk_bytes=GIB)
    assert limits_for(4, asked, machine) == limits_for(4, asked, machine, strict=True) == asked


def test_a_strict_cluster_has_less():
    machine = Machine(cores=64, memory_bytes=200 * GIB)
    assert limits_for(2, Limits(), machine, strict=True) == Limits(
        memory_bytes=2 * GIB, processes=256, disk_bytes=GIB // 4
    )


def test_limits_are_read_as_they_were_written_and_from_another_version_as_far_as_they_go():
    limits = Limits(memory_bytes=GIB, processes=3)
    assert Limits.from_json(limits.to_json()) == limits
    assert Limits.from_json(golden(1)) == Limits(processes=3)
    assert Limits.from_json("[]") == Limits.from_json("{") == Limits()


def test_limits_are_told_in_words():
    limits = Limits(memory_bytes=4 * GIB, processes=1024, disk_bytes=8 * GIB)
    assert limits.describe() == golden(1)
    assert Limits().describe() == golden(2)
