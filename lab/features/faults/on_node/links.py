"""Apply, inspect, measure, and undo conditions of links in the network namespace of a node.

A condition is a part with a name. Each change gives the kernel all parts that are in force together. So applying or
undoing a part twice changes nothing, and removing the last part restores the original state.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....node.netlink import find_device
from . import LATE, NO_NETEM, merge_parts
from .shaping import CABLE, Shaped, Shaping, count_packets, has_rules, pull_cable, replace_rules, reset_connections

if TYPE_CHECKING:
    from .actions import Actions

_parts: dict[str, Mapping[str, Any]] = {}
"""The parts in force, by name."""
_were_reset: dict[str, int] = {}
"""By name of a part: how many open connections it reset when it came into force."""


def _make(address: str) -> None:
    """Make the kernel have exactly the conditions in force.

    Raises:
        OSError, ValueError: The kernel does not support it.
    """
    asked, device = in_force(), find_device(address)
    queues, to, cable = Shaping(device), asked["to"], asked["rate_bits_per_s"]
    shaped = {peer: how for peer, how in to.items() if cable or any(map(how.get, ("rate_bits_per_s", *LATE)))}
    if shaped and not device:
        raise ValueError(f"no network device has the address {address}: was the node disconnected from its network?")
    if any(how.get(name) for how in shaped.values() for name in LATE) and not queues.supports("netem"):
        raise ValueError(NO_NETEM)
    queues.make(shaped, cable)
    twice = {peer: how["duplicate"] for peer, how in to.items() if how.get("duplicate")}
    replace_rules(asked["from"], twice, names=not asked["no_names"])


def apply_links(actions: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Add a condition, or replace the one of the same name; return the conditions in force.

    Args:
        said: `part`, its name; `address`, of this node; `to`, by address of a peer, conditions of packets to it;
            `from`, by address of a peer, which of its packets are dropped; `rate_bits_per_s`, of all packets to peers;
            `no_names`, whether name queries are refused.

    Raises:
        OSError, ValueError: The kernel does not support it; the previous conditions are in force again.
    """
    name, before = str(parameters["part"]), dict(_parts)
    _parts[name] = parameters
    try:
        _make(parameters["address"])
    except (OSError, ValueError):
        _parts.clear()
        _parts.update(before)
        with suppress(OSError, ValueError):  # the previous conditions may have become impossible
            _make(parameters["address"])
        raise
    if peers := [peer for peer, how in parameters.get("from", {}).items() if how.get("reset")]:
        with suppress(OSError):  # both ends of each connection get an error anyway
            _were_reset[name] = _were_reset.get(name, 0) + reset_connections(peers)
    return inspect_links(actions, parameters)


def undo_links(actions: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Remove a condition; return the conditions in force.

    Raises:
        OSError: The kernel does not support it.
    """
    _parts.pop(parameters["part"], None)
    _were_reset.pop(parameters["part"], None)
    _make(parameters["address"])
    return inspect_links(actions, parameters)


def inspect_links(_: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions that the kernel has, with its counters and capabilities.

    Raises:
        OSError: The kernel does not answer.
    """
    queues = Shaping(find_device(parameters["address"]))
    in_force = {"parts": sorted(_parts), "shaped": queues.exists(), "filtered": has_rules()}
    counts = {"met": count_packets(), "were_reset": sum(_were_reset.values())}
    return {**in_force, **counts, "netem": queues.supports("netem")}


def apply_cable(actions: Actions, _: Mapping[str, Any]) -> None:
    """Unplug the node's network cable."""
    pull_cable(out=True)


def undo_cable(actions: Actions, _: Mapping[str, Any]) -> None:
    """Plug the node's network cable in again."""
    pull_cable(out=False)


def inspect_cable(actions: Actions, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the cable is unplugged."""
    return {"in_force": has_rules(CABLE)}


def in_force() -> dict[str, Any]:
    """Return all conditions in force, as one."""
    return merge_parts(list(_parts.values()))


_CLOSED_PORT = 1
_DISCARD_PORT = 9
_PROBE_S = 0.06
_LEAST_PACKETS = 20
_LONGEST_PROBE_S = 0.5
_FASTEST = 2e9
"""The rate up to which a node can fill a link with packets, in bits per second; faster links are not measured."""
_DATAGRAM = b"\0" * 1400
_WIRE_BYTES = len(_DATAGRAM) + 42
_IN_THE_KERNEL_BYTES = 2304
_LEAST_WAITING = 8
_SEND_BUFFER_FORCED = 32
_PATIENCE_S = 5.0
_PATIENCE = 4
_ROUND_TRIPS, _ROUND_TRIPS_S = 5, 0.2
"""Number of attempts, if they are fast."""
_BETWEEN_S = 0.004


def inspect_link_probe(_: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Measure packets to `peer`: `round_trip_s`, and `bits_per_s` if the rate is limited.

    Raises:
        OSError: The kernel does not answer.
    """
    peer, asked, measured = str(parameters["peer"]), in_force(), dict[str, Any]()
    how = asked["to"].get(peer, {})
    if asked["from"].get(peer):  # an answer may be lost
        return {}
    rate = min(how.get("rate_bits_per_s", math.inf), asked["rate_bits_per_s"] or math.inf)
    if how.get("delay_s"):
        measured["round_trip_s"] = _round_trip_s(peer)
    if rate <= _FASTEST:
        late_s = how.get("delay_s", 0.0) + how.get("jitter_s", 0.0)
        measured["bits_per_s"] = _rate(peer, rate, late_s, Shaping(find_device(parameters["address"])))
    return {name: value for name, value in measured.items() if value is not None}


def _round_trip_s(peer: str) -> float | None:
    """Return the shortest time in which a closed port refuses a connection, of a few attempts."""
    least_s, began = math.inf, time.monotonic()
    for _ in range(_ROUND_TRIPS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asking:
            asking.settimeout(_PATIENCE_S)
            asked = time.monotonic()
            try:
                asking.connect((peer, _CLOSED_PORT))
            except ConnectionError:
                least_s = min(least_s, time.monotonic() - asked)
            except OSError:
                break
        if time.monotonic() - began > _ROUND_TRIPS_S:
            break
    return least_s if least_s < math.inf else None


def _rate(peer: str, asked: float, late_s: float, queues: Shaping) -> float | None:
    """Measure the bits per second to a peer while more packets wait; None if the link could not be filled.

    Only intervals count in which packets waited at the beginning and at the end: a busy machine is no slow link. They
    count only after the first packet, because an earlier packet may have been large. The code counts waiting packets
    itself, because the kernel does not count packets that it creates late for a socket.
    """
    late = late_s * asked / 8 / _WIRE_BYTES
    waiting = max(_LEAST_WAITING, asked * _PROBE_S / 8 / _WIRE_BYTES / 3)  # other packets must not wait long for these
    lasts_s = min(_LONGEST_PROBE_S, max(_PROBE_S, _LEAST_PACKETS * _WIRE_BYTES * 8 / asked))
    sent, took_s, moves = 0, 0.0, False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.setblocking(False)
        for option in (socket.SO_SNDBUF, _SEND_BUFFER_FORCED):  # old kernels allow that to the machine's root only
            with suppress(OSError):
                sending.setsockopt(socket.SOL_SOCKET, option, int(waiting * _IN_THE_KERNEL_BYTES / 2))  # doubled by it
        until = time.monotonic() + _PATIENCE * lasts_s + late_s
        before, at, sure = _read_counters(queues, peer)
        while took_s < lasts_s and at < until:
            _fill(sending, peer, until, most=int(late + waiting - before.waiting))
            time.sleep(_BETWEEN_S)
            now, later, sure_now = _read_counters(queues, peer)
            if min(before.waiting, now.waiting) > late and moves and sure and sure_now:
                sent, took_s = sent + now.bytes - before.bytes, took_s + later - at
            moves = moves or now.bytes > before.bytes
            before, at, sure = now, later, sure_now
    return sent * 8 / took_s if took_s >= lasts_s / 2 else None


def _read_counters(queues: Shaping, peer: str) -> tuple[Shaped, float, bool]:
    """Bytes sent to a peer, the time of the count, and whether it is exact."""
    began = time.monotonic()
    counters = queues.read_counters(peer)
    ended = time.monotonic()
    return counters, (began + ended) / 2, ended - began < _BETWEEN_S / 4


def _fill(sending: socket.socket, peer: str, until: float, most: int) -> None:
    """Send this much, until the queue is full or time is up: some links are faster than this machine."""
    for _ in range(most):
        if time.monotonic() > until:
            return
        try:
            sending.sendto(_DATAGRAM, (peer, _DISCARD_PORT))
        except BlockingIOError:
            return
        except ConnectionError:  # nobody listens there, as was to be expected
            continue
