"""More nodes than a machine has room for are refused before they bite, with what would fit."""

from __future__ import annotations

import pytest

from lab.errors import ClusterUnfit
from lab.plan.limits import Capacity, NodeCost, refuse_excess_nodes
from tests.golden import golden

COST = NodeCost(node_bytes=10_000_000, shared_bytes=400_000_000)
PLENTY = Capacity(memory_bytes=10**15, threads=10**9, open_files=10**9)


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        (Capacity(memory_bytes=2_440_000_000), r"GB of memory, but this machine has 2.44 GB: at most \d+ nodes fit\n"),
        (Capacity(memory_bytes=1_000_000), "of memory, but this machine has 1 MB: no node fits\n"),
        (Capacity(threads=2_500), r"processes and threads, but this machine has 2,500: at most \d+ nodes fit\n"),
        (Capacity(threads=30), "processes and threads, but this machine has 30: at most 1 node fits\n"),
        (Capacity(open_files=1_000), r"open files in one process, but this machine has 1,000: at most \d+ nodes fit\n"),
    ],
)
def test_what_there_is_too_little_of_is_named_with_how_many_nodes_would_fit(capacity: Capacity, message: str):
    with pytest.raises(ClusterUnfit, match=golden(1, message)):
        refuse_excess_nodes(256, 4, capacity, COST)


@pytest.mark.parametrize(
    "narrow",
    [
        {"memory_bytes": 3_333_333_333},
        {"threads": 1_234},
        {"open_files": 1_021},
    ],
)
@pytest.mark.parametrize("nproc_per_node", [1, 3])
def test_as_many_as_are_said_to_fit_do_and_one_more_does_not(narrow: dict[str, int], nproc_per_node: int):
    capacity = PLENTY._replace(**narrow)
    with pytest.raises(ClusterUnfit) as refused:
        refuse_excess_nodes(60_000, nproc_per_node, capacity, COST)
    fit = int(refused.value.message.partition("at most ")[2].partition(" ")[0].replace(",", ""))
    refuse_excess_nodes(fit, nproc_per_node, capacity, COST)
    with pytest.raises(ClusterUnfit):
        refuse_excess_nodes(fit + 1, nproc_per_node, capacity, COST)


def test_where_a_machine_does_not_say_what_it_has_nothing_is_refused():
    refuse_excess_nodes(100_000, 8, Capacity(), COST)
