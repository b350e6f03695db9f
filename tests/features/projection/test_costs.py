"""What operations cost: the closed formulas on known cases, and which algorithm is taken where."""

from __future__ import annotations

import pytest

from lab.errors import UsageError
from lab.features.projection.costs import (
    FORMULAS,
    Cost,
    Layout,
    Pattern,
    Target,
    list_choices,
    parse_network,
    pattern_of,
)
from lab.operations import OPERATIONS, get_operation

MB = 1e6


def cost(pattern: Pattern, algorithm: str, ranks: int, size: float = MB, racks: int = 1) -> Cost:
    return FORMULAS[pattern][algorithm](Layout(ranks, racks), size)


def test_an_all_reduce_of_eight_ranks_costs_what_the_papers_say() -> None:
    assert cost(Pattern.ALL_REDUCE, "ring", 8) == Cost(14, 2 * 7 / 8 * MB)
    assert cost(Pattern.ALL_REDUCE, "halving-doubling", 8) == Cost(6, 2 * 7 / 8 * MB)
    assert cost(Pattern.ALL_REDUCE, "tree", 8) == Cost(6, 2 * MB)


def test_halving_and_doubling_of_no_power_of_two_has_the_ranks_beyond_hand_theirs_in_and_get_the_result() -> None:
    assert cost(Pattern.ALL_REDUCE, "halving-doubling", 6) == Cost(4 + 2, (2 * 3 / 4 + 2) * MB)


def test_gathering_and_reduce_scattering_are_half_of_an_all_reduce() -> None:
    for pattern in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER):
        assert cost(pattern, "ring", 8) == Cost(7, 7 / 8 * MB)
        assert cost(pattern, "halving-doubling", 8) == Cost(3, 7 / 8 * MB)


def test_a_hierarchical_all_reduce_sends_a_part_of_its_bytes_between_racks() -> None:
    found = cost(Pattern.ALL_REDUCE, "hierarchical", 32, racks=4)
    assert found == Cost(2 * 7, 2 * 7 / 8 * MB, 2 * 3, 2 * 3 / 4 * MB / 8)


def test_a_ring_through_racks_waits_for_the_way_between_them_in_each_round() -> None:
    assert cost(Pattern.ALL_REDUCE, "ring", 32, racks=4) == Cost(0, 0, 62, 2 * 31 / 32 * MB)


@pytest.mark.parametrize("pattern", list(Pattern))
def test_one_rank_alone_pays_for_nothing_but_messages(pattern: Pattern) -> None:
    for formula in FORMULAS[pattern].values():
        found = formula(Layout(1), MB)
        assert pattern is Pattern.MESSAGE or (found.rounds, found.bytes) == (0, 0)


@pytest.mark.parametrize("name", [*OPERATIONS, "unheard_of"])
def test_every_operation_has_an_algorithm_in_every_library(name: str) -> None:
    for library in ("gloo", "nccl", "mpi"):
        assert list_choices(library, pattern_of(get_operation(name)), Layout(8))


def test_operations_that_cost_the_same_have_one_pattern() -> None:
    patterns = {name: pattern_of(get_operation(name)) for name in OPERATIONS}
    assert patterns["all_reduce_coalesced"] is Pattern.ALL_REDUCE
    assert patterns["all_gather_into_tensor"] is Pattern.ALL_GATHER
    assert patterns["reduce_scatter_tensor"] is Pattern.REDUCE_SCATTER
    assert patterns["broadcast"] is patterns["reduce"] is Pattern.ONE_TO_ALL
    assert patterns["gather"] is patterns["scatter"] is Pattern.PARTS
    assert patterns["all_to_all_single"] is Pattern.ALL_TO_ALL
    assert patterns["barrier"] is Pattern.BARRIER
    assert patterns["send"] is patterns["recv"] is Pattern.MESSAGE


def test_nccl_takes_a_tree_for_small_tensors_of_many_ranks_and_a_ring_for_large_ones_of_few() -> None:
    network = parse_network("lan-100g")
    assert network is not None

    def taken(ranks: int, size: float) -> str:
        formulas = list_choices("nccl", Pattern.ALL_REDUCE, Layout(ranks))
        return min(formulas, key=lambda name: network.seconds(formulas[name](Layout(ranks), size)))

    assert taken(512, 10_000) == "tree"
    assert taken(8, 1e9) == "ring"


def test_hierarchical_is_a_choice_only_where_racks_hold_several_ranks() -> None:
    assert "hierarchical" not in list_choices("nccl", Pattern.ALL_REDUCE, Layout(8))
    assert "hierarchical" not in list_choices("nccl", Pattern.ALL_REDUCE, Layout(8, 8))
    assert "hierarchical" in list_choices("nccl", Pattern.ALL_REDUCE, Layout(8, 2))


def test_a_network_is_a_profile_and_what_is_said_beside_it() -> None:
    assert parse_network("measured") is None
    found = parse_network("lan-100g,racks=16,between=25gbit,alpha=2ms,rate=200gbit")
    assert found == Target(
        name="lan-100g,racks=16,between=25gbit,alpha=2ms,rate=200gbit",
        alpha_s=0.002,
        bandwidth=25e9,
        racks=16,
        between=3.125e9,
    )
    two = parse_network("datacenter")
    assert two is not None
    assert (two.racks, two.bandwidth, two.between) == (2, 1.25e9, 1.25e8)
    far = parse_network("wan-40ms")
    assert far is not None
    assert far.alpha_s > 0.02


@pytest.mark.parametrize(
    "text", ["lan", "measured,racks=2", "lan-1g,racks=0", "lan-1g,racks", "lan-1g,rate=fast", "lan-1g,speed=1gbit", ""]
)
def test_a_network_that_is_none_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError, match=r"measured|allowed"):
        parse_network(text)
