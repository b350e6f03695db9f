"""What was read back of a fault, in words."""

from __future__ import annotations

from typing import Any

import pytest

from lab.features.faults.detection import render_measured


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, ""),
        ({"state": "ended"}, ""),
        (
            {"asked_rate_bits_per_s": 1e8, "bits_per_s": 9.6e7, "measured": "node0 -> node1"},
            "requested 100 Mbit/s, measured 96 Mbit/s (node0 -> node1)",
        ),
        ({"asked_rate_bits_per_s": 1e10}, "requested 10 Gbit/s, which is too fast to measure here"),
        (
            {"asked_delay_s": 0.02, "round_trip_s": 0.0403, "measured": "node0 -> node1"},
            "requested 20 ms one way, measured round trip 40.3 ms (node0 -> node1)",
        ),
        ({"asked_delay_s": 0.02}, "requested 20 ms one way, got no answer"),
        ({"dropped_packets": 1}, "1 packet dropped"),
        (
            {"asked_rate_bits_per_s": 5e6, "bits_per_s": 5e6, "lost_packets": 12},
            "requested 5 Mbit/s, measured 5 Mbit/s; 12 packets lost",
        ),
        ({"bits_per_s": "many", "dropped_packets": True, "lost_packets": None}, ""),
    ],
)
def test_what_was_found_is_told_in_words(found: dict[str, Any], words: str) -> None:
    assert render_measured(found) == words
