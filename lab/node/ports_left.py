"""Ports of a container that the kernel keeps after the processes that used them have ended.

A connection in TIME_WAIT keeps its port for a minute, whoever opened it. A run that closes thousands of connections
would take these ports from the next run, so a node with too many of them takes no run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

_PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_COUNTS = ("/proc/net/sockstat", "/proc/net/sockstat6")
"""How many sockets there are of each protocol: the kernel keeps these counts, so reading them is cheap."""
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_COUNTED = ("inuse", "tw")
_KEPT_BY_KERNEL = frozenset(("04", "05", "06", "09", "0B"))
"""FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING: states of connections that may have no process any more."""
_STRICT_SHARE, _SHARE = 0.1, 0.25
"""Parts of the kernel's own range of ports that may be kept: runs of gloo with dozens of ranks a node keep hundreds."""
_USUAL_RANGE = range(32768, 61000)


def describe_kept_ports(reusable: Collection[int], *, strict: bool) -> str:
    """Describe the ports that keep this node from another run; empty where it has enough of them.

    Args:
        reusable: ports that the next run can have all the same.
        strict: whether a stranger's script may have chosen the ports. Then none may be kept outside of the kernel's
            range: the next script may want that very port.
    """
    ports = _read_port_range()
    kept = _count_sockets()
    if kept > (_STRICT_SHARE if strict else _SHARE) * len(ports):
        return f"{kept:,} connections, which keep their ports for a minute (TIME_WAIT); there are {len(ports):,} ports"
    chosen = (
        sorted({port for port in _read_kept_ports() if port not in ports and port not in reusable})
        if strict and kept
        else []
    )
    return f"connections that keep port {', '.join(map(str, chosen[:3]))} for a minute (TIME_WAIT)" if chosen else ""


def _read_port_range() -> range:
    """The ports that the kernel gives to whoever asks for any."""
    with suppress(OSError, ValueError), open(_PORT_RANGE) as file:
        first, last = map(int, file.read().split())
        return range(first, last + 1)
    return _USUAL_RANGE


def _count_sockets() -> int:
    """All sockets of this network namespace that have a port, those in TIME_WAIT included."""
    count = 0
    for path in _COUNTS:
        with suppress(OSError, ValueError), open(path) as file:
            for line in file:
                protocol, _, words = line.partition(":")
                if protocol.startswith(("TCP", "UDP")):
                    names = words.split()
                    count += sum(int(names[names.index(name) + 1]) for name in _COUNTED if name in names)
    return count


def _read_kept_ports() -> Iterator[int]:
    """The local port of every connection that no process needs to have."""
    for path in _TABLES:
        with suppress(OSError, ValueError, IndexError), open(path) as file:
            next(file, "")
            for line in file:
                words = line.split()
                if words[3] in _KEPT_BY_KERNEL:
                    yield int(words[1].rpartition(":")[2], 16)
