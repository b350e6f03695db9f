"""Nodes that were cut off for a while, by what kernels said of connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.explain import explain_run
from lab.features.links.findings import find_flaps
from lab.node.messages.agent import Connections
from lab.record.events import event_line
from lab.record.layout import EVENTS
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

BEGAN = 1_700_000_000.0
Told = tuple[float, int, int, float, int]
"""Second of the run, who tells, of whom, for how long nothing was acknowledged, what had been."""


def evidence(folder: Path, told: list[Told], *, ended: bool = True) -> Evidence:
    """Three ranks on three nodes whose second all_reduce takes from 1 s to 3 s, or never ends."""
    made = TraceMaker(folder / "run", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 100, 110, [[1.0]], [[3.0]])
        made.call(rank, "all_reduce", 1000, 3000 if ended else None, [[1.0]], [[3.0]])
        made.call(rank, "barrier", 3100, 3101) if ended else None
    lines = [
        event_line(
            Connections(BEGAN + at, f"node{one}", "r", f"node{other}", 2, silent_s=for_s, acknowledged_bytes=got)
        )
        for at, one, other, for_s, got in told
    ]
    (made.path / EVENTS).write_bytes(b"".join(lines))
    return read_evidence(made.record())


def test_a_node_that_is_at_an_end_of_all_links_that_failed_for_a_while_is_named(tmp_path: Path) -> None:
    [found] = find_flaps(evidence(tmp_path, [(1.9, 1, 0, 0.7, 50), (2.1, 2, 1, 0.9, 50)]))
    assert (found.kind, found.ranks, found.others, found.link) == ("cut_off", (1,), (0, 2), "")
    assert (found.step, found.seconds) == ("all_reduce #2", 0.9)
    assert told_facts(found) == {
        "links": [["node0", "node1"], ["node1", "node2"]],
        "nodes": ["node1"],
        "bursts_s": [0.8999999999999999],
        "step_s": 2.0,
    }


def test_of_one_link_that_failed_for_a_while_neither_end_is_named(tmp_path: Path) -> None:
    [found] = find_flaps(evidence(tmp_path, [(1.9, 1, 0, 0.7, 50), (2.0, 0, 1, 0.8, 50)]))
    assert (found.ranks, found.link) == ((), "node0 - node1")


def test_links_that_failed_again_and_again_are_counted(tmp_path: Path) -> None:
    told = [
        (1.3, 1, 0, 0.25, 50),
        (1.4, 1, 2, 0.2, 50),
        (2.6, 1, 0, 0.5, 90),
        (4.0, 1, 0, 0.3, 99),
        (5.0, 1, 0, 0, 120),
    ]
    [found] = find_flaps(evidence(tmp_path, told))
    assert found.ranks == (1,)
    assert told_facts(found) == {
        "links": [["node0", "node1"], ["node1", "node2"]],
        "nodes": ["node1"],
        "bursts_s": [0.25, 0.5, 0.2999999999999998],
        "step_s": 2.0,
    }


@pytest.mark.parametrize(
    "told",
    [
        pytest.param([(1.5, 1, 0, 0.1, 50), (1.6, 2, 0, 0.19, 50)], id="shorter than a kernel waits at least"),
        pytest.param([(3.9, 1, 0, 0.7, 50), (4.0, 2, 0, 0.7, 50)], id="nothing came through after it"),
    ],
)
def test_what_says_nothing_of_a_flap(tmp_path: Path, told: list[Told]) -> None:
    assert [*find_flaps(evidence(tmp_path, told))] == []


def test_what_was_cut_off_in_the_end_did_not_come_through(tmp_path: Path) -> None:
    found = evidence(tmp_path, [(2.0, 1, 0, 0.9, 50), (3.0, 1, 0, 1.9, 50)], ended=False)
    assert [*find_flaps(found)] == []


def test_a_flap_is_told_before_what_took_time(tmp_path: Path) -> None:
    found = evidence(tmp_path, [(1.9, 1, 0, 0.7, 50), (2.1, 2, 1, 0.9, 50)])
    assert explain_run(found.record, found).findings[0].kind == "cut_off"
