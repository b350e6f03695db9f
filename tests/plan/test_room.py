"""More nodes than a machine has room for are refused before they bite, with what would fit."""

from __future__ import annotations

import pytest

from lab.errors import ClusterUnfit
from lab.plan.limits import NodeCost, Room, refuse_crowd
from tests.golden import golden

COST = NodeCost(node_bytes=10_000_000, shared_bytes=400_000_000)
PLENTY = Room(memory_bytes=10**15, threads=10**9, open_files=10**9, all_open_files=10**15)


@pytest.mark.parametrize(
    ("room", "message"),
    [
        (Room(memory_bytes=2_440_000_000), r"GB of memory and this machine has 2.44 GB: at most \d+ nodes fit\n"),
        (Room(memory_bytes=1_000_000), "of memory and this machine has 1 MB: not one node fits\n"),
        (Room(threads=2_500), r"processes and threads and this machine has 2,500: at most \d+ nodes fit\n"),
        (Room(threads=30), "processes and threads and this machine has 30: at most 1 node fits\n"),
        (Room(open_files=1_000), r"open files in one process and this machine has 1,000: at most \d+ nodes fit\n"),
        (Room(all_open_files=200_000), "in all processes together and this machine has 200,000: at most"),
    ],
)
def test_what_there_is_too_little_of_is_named_with_how_many_nodes_would_fit(room: Room, message: str):
    with pytest.raises(ClusterUnfit, match=golden(1, message)):
        refuse_crowd(256, 4, room, COST)


@pytest.mark.parametrize(
    "narrow",
    [
        {"memory_bytes": 3_333_333_333},
        {"threads": 1_234},
        {"open_files": 1_021},
        {"all_open_files": 77_777},
    ],
)
@pytest.mark.parametrize("nproc_per_node", [1, 3])
def test_as_many_as_are_said_to_fit_do_and_one_more_does_not(narrow: dict[str, int], nproc_per_node: int):
    room = PLENTY._replace(**narrow)
    with pytest.raises(ClusterUnfit) as refused:
        refuse_crowd(60_000, nproc_per_node, room, COST)
    fit = int(refused.value.message.partition("at most ")[2].partition(" ")[0].replace(",", ""))
    refuse_crowd(fit, nproc_per_node, room, COST)
    with pytest.raises(ClusterUnfit):
        refuse_crowd(fit + 1, nproc_per_node, room, COST)


def test_where_a_machine_does_not_say_what_it_has_nothing_is_refused():
    refuse_crowd(100_000, 8, Room(), COST)
