"""What is said of a host's clock."""

from __future__ import annotations

import pytest

from lab.features.swarm.doctor import Clock, clock_check, read_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T00:00:01.123456789Z", 1.123456789),
        ("1970-01-01T01:00:01.25+01:00", 1.25),
    ],
)
def test_the_time_of_an_engine_is_read_with_all_its_digits(text: str, seconds: float):
    assert read_time(text) == pytest.approx(seconds)


def test_a_clock_is_called_wrong_only_beyond_what_was_measured_may_be_wrong():
    assert clock_check("host a", Clock(0.01, 0.002)).level == "ok"
    assert clock_check("host a", Clock(0.5, 0.6)).level == "ok"
    behind = clock_check("host a", Clock(-2.0, 0.01))
    assert (behind.level, "2 s behind ours" in behind.found) == ("warning", True)
    assert "ahead of ours" in clock_check("host a", Clock(2.0, 0.01)).found
