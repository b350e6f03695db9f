"""Connections that broke by themselves, from what ranks say that lost them."""

from __future__ import annotations

from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.finding import Finding
from lab.features.links.findings import broken_link
from lab.node.messages.agent import Exited
from lab.record.events import Clock
from tests.golden import golden

_TEXTS = {
    "reset": "RuntimeError: [pair.cc:537] Read error [10.0.0.{}]:5041: Connection reset by peer. This is typical",
    "aborted": "RuntimeError: [pair.cc:537] Read error [10.0.0.{}]:5041: Software caused connection abort. This is typ",
    "refused": "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: "
    "Connection refused, remote=[10.0.0.{}]:11180$0",
    "closed": "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.{}]:5041. This is typical",
}


def _found(*ends: tuple[int, str, int, float], together: bool = False) -> Finding | None:
    """What is found where ranks failed: who, how, having lost whom, when."""
    facts = RunFacts(ranks=[RankFacts(rank=rank, node=f"node{rank}") for rank in range(3)])
    for rank in range(3):
        facts.add(Clock(0.0, f"node{rank}", address=f"10.0.0.{rank}"))
    for rank, how, peer, at in ends:
        error = _TEXTS[how].format(peer)
        facts.add(Exited(rank, at + 0.1, f"node{rank}", code=1, error=error, raised=at))
    failed = sorted((rank for rank in facts.ranks if rank.failed), key=lambda rank: rank.raised or 0.0)
    return broken_link(facts, failed, lambda rank, node: together)


def test_a_connection_that_was_reset_while_both_ranks_were_there_names_nobody() -> None:
    found = _found((0, "reset", 2, 1.0), (2, "closed", 0, 1.2), (1, "closed", 0, 1.3))
    assert found is not None
    assert (found.kind, found.ranks) == ("connection_reset", ())
    assert found.link == "node0 - node2"
    assert found.headline.startswith(golden(1))


def test_a_connection_that_was_refused_while_both_ranks_were_there_names_the_link() -> None:
    found = _found((0, "refused", 1, 1.0), (1, "reset", 0, 1.1))
    assert found is not None
    assert (found.kind, found.ranks, found.link) == ("connection_reset", (), "node0 - node1")
    assert found.headline.startswith(golden(1))
    assert _found((0, "refused", 1, 1.1), (1, "reset", 0, 1.0)).link == "node0 - node1"  # type: ignore[union-attr]
    assert _found((1, "closed", 2, 1.0), (0, "refused", 1, 1.2)) is None  # it listens no more


def test_within_a_node_there_is_no_link() -> None:
    assert _found((0, "reset", 0, 1.0), (1, "closed", 0, 1.2)) is None


def test_that_others_have_ended_well_does_not_explain_a_reset_and_that_the_peer_has_does() -> None:
    for ended, link in ((1, "node0 - node2"), (2, "")):
        facts = RunFacts(ranks=[RankFacts(rank=rank, node=f"node{rank}") for rank in range(3)])
        for rank in range(3):
            facts.add(Clock(0.0, f"node{rank}", address=f"10.0.0.{rank}"))
        facts.add(Exited(ended, 0.9, f"node{ended}", code=0))
        facts.add(Exited(0, 1.1, "node0", code=1, error=_TEXTS["reset"].format(2), raised=1.0))
        found = broken_link(facts, [facts.ranks[0]], lambda rank, node: False)
        assert (found.link if found is not None else "") == link


def test_a_rank_whose_connection_to_the_store_was_reset_names_the_link_to_its_node() -> None:
    facts = RunFacts(ranks=[RankFacts(rank=rank, node=f"node{rank}") for rank in range(3)])
    error = "torch.distributed.DistNetworkError: Software caused connection abort"
    facts.add(Exited(1, 1.1, "node1", code=1, error=error, raised=1.0))
    found = broken_link(facts, [facts.ranks[1]], lambda rank, node: False, "node0")
    assert found is not None
    assert found.link == "node0 - node1"
    assert broken_link(facts, [facts.ranks[1]], lambda rank, node: False, "node1") is None


def test_an_end_whose_own_kernel_aborted_the_connection_names_the_link_too() -> None:
    found = _found((2, "aborted", 0, 1.0), (0, "reset", 2, 1.001), (1, "closed", 0, 1.3))
    assert found is not None
    assert (found.ranks, found.link) == ((), "node0 - node2")


def test_several_connections_of_one_node_name_it() -> None:
    found = _found((0, "reset", 1, 1.0), (2, "reset", 1, 1.01), (1, "reset", 0, 1.2))
    assert found is not None
    assert found.ranks == (1,)
    assert found.headline.startswith(golden(1))


def test_a_rank_that_had_failed_before_has_closed_its_connections_itself() -> None:
    assert _found((0, "closed", 2, 1.0), (2, "reset", 0, 1.2)) is None
    found = _found((0, "reset", 2, 1.0), (1, "reset", 0, 1.1), (2, "reset", 0, 1.2))
    assert found is not None
    assert found.ranks == ()


def test_a_connection_that_a_peer_closed_is_broken_where_that_peer_was_in_the_same_call() -> None:
    ends = [(0, "closed", 2, 1.0), (2, "closed", 0, 1.2)]
    assert _found(*ends) is None
    found = _found(*ends, together=True)
    assert found is not None
    assert found.ranks == ()
