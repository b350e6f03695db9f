"""Measures the links of a node as they are: looks at them with packets of its own, which takes a moment."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import links, shaping
from .netlink import ROUTE, Netlink

if TYPE_CHECKING:
    from .deeds import Context

APART = True
_CLOSED_PORT = 1
_DISCARD_PORT = 9
_PROBE_S = 0.06
_LEAST_PACKETS = 20
_LONGEST_PROBE_S = 0.5
_FASTEST = 2e9
"""What a node fills with packets of its own, in bits a second; faster links are not measured."""
_DATAGRAM_BYTES = 1400
_WIRE_BYTES = _DATAGRAM_BYTES + 42
_IN_THE_KERNEL_BYTES = 2304
_LEAST_WAITING = 8
_PATIENCE_S = 5.0


def look(_: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """What packets to `peer` meet now: `round_trip_s`, and `bits_per_s` where the rate is limited.

    Raises:
        OSError: the kernel does not say.
    """
    address, peer, asked = str(said["address"]), str(said["peer"]), links.in_force()
    how, found = asked["to"].get(peer, {}), {}
    if asked["from"].get(peer):  # an answer may be lost
        return {}
    rate = min(how.get("rate_bits_per_s", math.inf), asked["rate_bits_per_s"] or math.inf)
    with Netlink(ROUTE) as route:
        queues = shaping.Shaping(shaping.device(address)[0], route)
        if how.get("delay_s"):
            found["round_trip_s"] = _round_trip_s(peer)
        if rate <= _FASTEST:
            found["bits_per_s"] = _rate(peer, rate, queues)
    return {name: value for name, value in found.items() if value is not None}


def _round_trip_s(peer: str) -> float | None:
    """How long it takes until a port of the peer at which nobody listens has refused a connection."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asking:
        asking.settimeout(_PATIENCE_S)
        began = time.monotonic()
        try:
            asking.connect((peer, _CLOSED_PORT))
        except ConnectionError:
            return time.monotonic() - began
        except OSError:
            return None
    return None


def _rate(peer: str, asked: float, queues: shaping.Shaping) -> float | None:
    """Bits a second that leave for a peer while more wants to than may; None where it could not be filled."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.setblocking(False)
        waiting = max(_LEAST_WAITING, asked * _PROBE_S / 8 / _WIRE_BYTES / 4)  # others should not wait for these long
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(waiting * _IN_THE_KERNEL_BYTES / 2))  # it doubles it
        payload = b"\0" * _DATAGRAM_BYTES
        before, began = queues.counted([peer])[peer], None
        lasts = min(_LONGEST_PROBE_S, max(_PROBE_S, _LEAST_PACKETS * _WIRE_BYTES * 8 / asked))
        until = time.monotonic() + 2 * lasts
        while time.monotonic() < until:
            try:
                sending.sendto(payload, (peer, _DISCARD_PORT))
            except BlockingIOError:
                if began is None:  # full: from here on it is as fast as it can be
                    began, before = time.monotonic(), queues.counted([peer])[peer]
                    until = began + lasts
                time.sleep(0.001)
            except ConnectionError:  # nobody listens there, as was to be expected
                continue
        if began is None:
            return None
        after, ended = queues.counted([peer])[peer], time.monotonic()
    return (after.bytes - before.bytes) * 8 / (ended - began)
