"""What kernels said of connections, as a table."""

from __future__ import annotations

from lab.features.calls.notation import connections_json, connections_text
from lab.node.messages.agent import Connections, Started
from lab.report.style import Style
from tests.golden import golden

_PLAIN = Style(colour=False)


def test_the_last_report_of_each_node_about_each_other_is_a_row() -> None:
    well = Connections(1.0, "node0", "r", "node1", 2, acknowledged_bytes=5000, segments_out=20, round_trip_s=0.0004,
                       rate_bytes_per_s=5e6)  # fmt: skip
    stuck = well._replace(
        time=3.0, peer="node2", unacknowledged_bytes=97, silent_s=1.5, sent_again=4, answers=False, rate_bytes_per_s=0.0
    )
    closed = Connections(4.0, "node0", "r", "node2", 0, answers=True)
    facts = [Started(0, 0.0), well._replace(peer="node2"), well, stuck, closed]
    header, *rows = [line.split("  ") for line in connections_text(facts, _PLAIN).splitlines()]
    assert [cell.strip() for cell in header if cell.strip()][:3] == ["from", "to", "round trip"]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["node0", "node1", "400 µs", "5 MB/s", "5 kB", "0 of 20", "-", "-"],
        ["node0", "node2", "400 µs", "-", "5 kB", "4 of 20", "97 B for 1.5 s", "no"],
    ]
    assert len(connections_json(facts)) == 4


def test_where_nothing_is_known_that_is_said() -> None:
    assert connections_text([], _PLAIN).startswith(golden(1))
