"""The clocks of several hosts: brought together by exchanges, with a bound of the error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.record.events import Clock, Over, event_line
from lab.record.layout import EVENTS, PLAN
from lab.record.read import Record
from lab.trace.model import Clocks
from lab.trace.read import align_clocks

AT = 1_700_000_000.0


@dataclass(frozen=True)
class Host:
    """One with a clock of its own, which shows so many seconds when it is `AT`, and gains so much in each."""

    name: str
    shown_s: float
    drift: float = 0.0

    def monotonic_s(self, when: float) -> float:
        return self.shown_s + when * (1 + self.drift)

    def exchange(self, when: float, error_s: float, wrong_s: float = 0.0) -> Clock:
        """At that moment of the run; what is told is off by so much, which is not known."""
        told = self.monotonic_s(when + wrong_s)
        return Clock(AT + when, self.name, 5.0, error_s, f"kernel of {self.name}", "", told)

    def start(self, when: float) -> dict[str, Any]:
        t = round(self.monotonic_s(when) * 1e9)
        return {"t": t, "wall": round((AT + 5.0 + when) * 1e9), "boot": f"kernel of {self.name}", "within": 100}


def record(folder: Path, *told: Clock, lasts_s: float) -> Record:
    names = ["node0", "node1", "node2"]
    workers = [{"rank": rank, "node": name, "local_rank": 0} for rank, name in enumerate(names)]
    (folder / PLAN).write_text(json.dumps({"run": "r", "workers": workers}))
    (folder / EVENTS).write_bytes(b"".join(map(event_line, (*told, Over(AT + lasts_s, lasts_s)))))
    return Record(path=folder)


def seconds(clocks: Clocks, rank: int, host: Host, when: float) -> float:
    """What the trace says of a moment, by the clock of a rank."""
    return clocks.readings[rank].nanoseconds(round(host.monotonic_s(when) * 1e9)) / 1e9 + clocks.origin_s - AT


@pytest.mark.parametrize("lasts_s", [0.2, 30.0, 3600.0])
def test_times_of_two_hosts_are_as_near_as_the_error_says(tmp_path: Path, lasts_s: float) -> None:
    hosts = [Host("node0", 7e5, 40e-6), Host("node1", 3.0, -45e-6)]
    told = [
        exchange
        for host, sign in zip(hosts, (1, -1), strict=True)
        for exchange in (host.exchange(0.0, 2e-3, sign * 2e-3), host.exchange(0.01, 3e-4, sign * 3e-4),
                         host.exchange(lasts_s, 1e-4, -sign * 1e-4))
    ]  # fmt: skip
    starts = {rank: host.start(0.02) for rank, host in enumerate(hosts)}
    clocks = align_clocks(starts, record(tmp_path, *told, lasts_s=lasts_s))
    assert 0 < clocks.error_s < 3e-3
    for when in (0.02, lasts_s / 2, lasts_s):
        for rank, host in enumerate(hosts):
            assert abs(seconds(clocks, rank, host, when) - when) <= clocks.errors[rank]
        one, other = (seconds(clocks, rank, host, when) for rank, host in enumerate(hosts))
        assert abs(one - other) <= clocks.error_s


def test_a_host_that_was_lost_before_the_end_is_known_the_less_the_longer_it_ran(tmp_path: Path) -> None:
    host = Host("node1", 10.0, 45e-6)
    clocks = align_clocks({1: host.start(0.02)}, record(tmp_path, host.exchange(0.01, 1e-4), lasts_s=100.0))
    assert 1e-3 < clocks.errors[1] < 2e-2
    assert abs(seconds(clocks, 1, host, 100.0) - 100.0) <= clocks.errors[1]


def test_ranks_of_one_kernel_have_no_error_among_each_other_and_those_of_two_have_both(tmp_path: Path) -> None:
    host, other = Host("node0", 10.0), Host("node2", 20.0)
    starts = {0: host.start(0.1), 1: host.start(0.2), 2: other.start(0.3)}
    told = [host.exchange(0.1, 2e-4), other.exchange(0.1, 5e-4)]
    clocks = align_clocks(starts, record(tmp_path, *told, lasts_s=0.1))
    assert clocks.are_separate
    assert clocks.uncertainty_s((0, 1)) == 0.0
    assert clocks.uncertainty_s((1, 2)) == clocks.errors[1] + clocks.errors[2] >= 7e-4


def test_one_machine_with_two_time_namespaces_has_one_time_of_day(tmp_path: Path) -> None:
    """Whose monotonic clocks differ; the lines of traces tell both."""
    starts = {
        0: {"t": 5 * 10**9, "wall": round(AT * 1e9), "boot": "kernel 1", "within": 300},
        1: {"t": 905 * 10**9, "wall": round((AT + 1) * 1e9), "boot": "kernel 2", "within": 70_000},
    }
    told = [Clock(AT, "node0", 0.0, 0.0, "kernel 1"), Clock(AT, "node1", 0.0, 0.0, "kernel 2")]
    clocks = align_clocks(starts, record(tmp_path, *told, lasts_s=1.0))
    assert [clocks.readings[rank].nanoseconds(starts[rank]["t"]) for rank in (0, 1)] == [0, 10**9]
    assert clocks.error_s == pytest.approx(71e-6)
