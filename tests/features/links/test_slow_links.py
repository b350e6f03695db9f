"""Links that are slower than others, by what kernels said of connections."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.features.links.findings import find_slow_links
from lab.node.messages.agent import Connections
from lab.record.events import event_line
from lab.record.layout import EVENTS
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

Ways = dict[tuple[int, int], float]


def _found(folder: Path, trips: Ways, again: Ways | None = None, nodes: int = 3) -> list[Finding]:
    """What is found where round trips from one node to another took so long, and this share was sent again."""
    made = TraceMaker(folder, nodes)
    lines = [
        event_line(
            Connections(
                float(at), f"node{one}", "r", f"node{other}", 2,
                round_trip_s=trips.get((one, other), 0.0002),
                segments_out=10_000, sent_again=int(10_000 * (again or {}).get((one, other), 0.0)),
            )
        )
        for at in (1, 2, 4)
        for one, other in permutations(range(nodes), 2)
    ]  # fmt: skip
    (made.path / EVENTS).write_bytes(b"".join(lines))
    return [*find_slow_links(read_evidence(made.record()))]


def test_a_node_all_of_whose_links_are_slow_is_named(tmp_path: Path) -> None:
    [found] = _found(tmp_path / "run", {(2, 1): 0.06, (1, 2): 0.04, (0, 2): 0.03})
    assert (found.kind, found.ranks, found.others) == ("slow_link", (2,), (0, 1))
    assert told_facts(found) == {
        "measure": "round_trip_s",
        "worst": 0.06,
        "rest": 0.0002,
        "links": [["node0", "node2"], ["node1", "node2"]],
        "nodes": ["node2"],
    }


def test_of_one_slow_link_neither_end_is_named(tmp_path: Path) -> None:
    [found] = _found(tmp_path / "run", {(2, 1): 0.06, (1, 2): 0.04})
    assert found.ranks == ()
    assert told_facts(found) == {
        "measure": "round_trip_s",
        "worst": 0.06,
        "rest": 0.0002,
        "links": [["node1", "node2"]],
    }


def test_a_node_whose_links_lose_much_is_named(tmp_path: Path) -> None:
    [found] = _found(tmp_path / "run", {}, {(1, 0): 0.03, (2, 1): 0.02})
    assert (found.kind, found.ranks) == ("slow_link", (1,))
    assert told_facts(found) == {
        "measure": "lost_share",
        "worst": 0.015,
        "rest": 0.0,
        "segments": 500,
        "links": [["node0", "node1"], ["node1", "node2"]],
        "nodes": ["node1"],
    }


def test_a_network_that_is_slow_everywhere_or_a_little_somewhere_says_nothing(tmp_path: Path) -> None:
    everywhere = dict.fromkeys(permutations(range(3), 2), 0.08)
    assert _found(tmp_path / "1", everywhere) == []
    assert _found(tmp_path / "2", {(2, 1): 0.006, (1, 2): 0.006, (0, 2): 0.007}) == []
    assert _found(tmp_path / "3", {}, {(2, 1): 0.001}) == []


Sent = dict[tuple[int, int], tuple[int, float, float, int]]
"""By way: bytes a report, seconds that it was at it, seconds that the reader was late, bytes that are on their way."""
FAST, NARROW = (2_000_000, 0.004, 0.0, 0), (1_200_000, 0.96, 0.0, 90_000)
LATE_READER, SMALL = (1_200_000, 0.96, 0.9, 90_000), (1_200_000, 0.96, 0.0, 500)


def _sent(folder: Path, ways: Sent) -> list[Finding]:
    made = TraceMaker(folder, 3)
    lines = []
    for number in (1, 2):
        for one, other in permutations(range(3), 2):
            carried, busy_s, late_s, on_its_way = ways.get((one, other), (1000, 0.04, 0.0, 0))
            told = Connections(float(number), f"node{one}", "r", f"node{other}", 2, on_its_way,
                               most_bytes=number * carried, busy_s=number * busy_s,
                               reader_late_s=number * late_s)  # fmt: skip
            lines.append(event_line(told))
    (made.path / EVENTS).write_bytes(b"".join(lines))
    return [*find_slow_links(read_evidence(made.record()))]


def test_a_node_whose_cable_is_full_at_a_low_rate_is_named(tmp_path: Path) -> None:
    [found] = _sent(tmp_path / "run", {(0, 1): FAST, (1, 2): NARROW, (2, 0): NARROW})
    assert (found.kind, found.ranks) == ("slow_link", (2,))
    assert told_facts(found) == {
        "measure": "bytes_per_s",
        "worst": 1250000.0,
        "rest": 500000000.0,
        "links": [["node0", "node2"], ["node1", "node2"]],
        "nodes": ["node2"],
    }
    [found] = _sent(tmp_path / "link", {(0, 1): FAST, (1, 2): FAST, (2, 0): NARROW})
    assert (found.ranks, found.link) == ((), "node0 - node2")


def test_who_reads_late_or_sends_little_at_a_time_has_no_slow_link_and_all_links_alike_say_nothing(
    tmp_path: Path,
) -> None:
    for name, how in (("late", LATE_READER), ("small", SMALL)):
        assert _sent(tmp_path / name, {(0, 1): FAST, (1, 2): how, (2, 0): how}) == []
    assert _sent(tmp_path / "all", dict.fromkeys(((0, 1), (1, 2), (2, 0)), NARROW)) == []
