"""What one node takes of tables that all containers of a machine share; docs/untrusted-scripts.md lists them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.features.strict.on_node.network import AT_ONCE, CONNECTIONS_PER_S, DATAGRAMS_PER_S
from lab.node.messages.agent import STRICT_OPEN_FILES

Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
pytestmark = [pytest.mark.docker, pytest.mark.parametrize("engine", ["docker"], indirect=True)]
NEIGHBOURS, FLOWS, EVENTS, FILES = 200, 30_000, 4096, 5000
"""Less than tables hold: nobody else on this machine is to notice."""
_NEIGHBOURS = Path("/proc/net/stat/arp_cache")
_FLOWS = Path("/proc/sys/net/netfilter/nf_conntrack_count")
_BRIDGES_ARE_SEEN = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def neighbours() -> int:
    """How many the kernel remembers, in all network namespaces."""
    return int(_NEIGHBOURS.read_text().splitlines()[1].split()[0], 16)


def flows() -> int:
    """How many the kernel remembers for this machine's own network namespace, where bridges lie."""
    return int(_FLOWS.read_text())


@contextmanager
def highest(count: Callable[[], int]) -> Iterator[list[int]]:
    """The highest count so far, less what there was at first: entries do not stay for long."""
    first, over = count(), threading.Event()
    found = [0]

    def poll() -> None:
        while not over.wait(0.05):
            found[0] = max(found[0], count() - first)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(10)


def attack(run: Run, cluster: Cluster) -> tuple[Result, int, int]:
    """Run the attack; how many neighbours and flows there were more than before, at the highest."""
    with highest(neighbours) as more_neighbours, highest(flows) as more_flows:
        result = run("shares.py", NEIGHBOURS, FLOWS, EVENTS, FILES, on=cluster)
    assert result.passed, result.reason + result.ranks[0].log
    return result, more_neighbours[0], more_flows[0]


def test_a_strict_node_takes_few_places_of_tables_that_containers_share(run: Run, make_cluster: MakeCluster) -> None:
    result, more_neighbours, more_flows = attack(run, make_cluster(nodes=2, strict=True))

    notes = result.ranks[0].notes
    assert more_neighbours < NEIGHBOURS // 4
    assert more_flows < 2 * AT_ONCE + 20 * (CONNECTIONS_PER_S + DATAGRAMS_PER_S)
    assert (notes["io_setup"], notes["events"]) == ([-errno.ENOSYS], 0)
    assert notes["files"] < STRICT_OPEN_FILES
    assert set(notes["refused"].values()) == {-errno.ENOSYS}


def test_a_usual_node_takes_what_the_documentation_says(run: Run, make_cluster: MakeCluster) -> None:
    result, more_neighbours, more_flows = attack(run, make_cluster(nodes=2))

    notes = result.ranks[0].notes
    assert more_neighbours > NEIGHBOURS // 2
    if _BRIDGES_ARE_SEEN.exists() and _BRIDGES_ARE_SEEN.read_text().strip() == "1":
        assert more_flows > FLOWS // 2
    assert notes["events"] >= EVENTS // 2
    assert notes["files"] == FILES
    assert set(notes["refused"].values()) <= {-errno.EPERM, -errno.ENOSYS}
