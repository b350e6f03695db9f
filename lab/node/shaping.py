"""How fast and how late packets leave a node for each of its peers: an htb class a peer, and netem where it is asked.

Everything hangs below one queue at the root of the device, so that removing that one undoes it all. What goes elsewhere
than to a peer passes it by. Classes and queues are changed in place: packets on their way stay on their way.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple

from . import netlink
from .netlink import (
    ABSENT,
    CREATE,
    EXCLUSIVE,
    EXISTS,
    REPLACE,
    Message,
    Netlink,
    Refused,
    attribute,
    attributes,
    nested,
)

LATE = ("delay_s", "jitter_s", "corrupt", "reorder")
"""What netem is needed for."""
SHAPED = ("rate_bits_per_s", *LATE)
_NEW_QUEUE, _DELETE_QUEUE, _QUEUES, _NEW_CLASS, _DELETE_CLASS, _CLASSES = 36, 37, 38, 40, 41, 42
_NEW_FILTER, _DELETE_FILTER = 44, 45
_KIND, _OPTIONS, _STATS = 1, 2, 7
_ROOT = 0xFFFFFFFF
_HTB = 0x1A0 << 16
"""Handle of the root; unlikely to be somebody else's."""
_CABLE = 0xFFFF
"""Minor number of the class of all peers together; that of each is the last 12 bits of its address."""
_NETEM = 0x2000
"""Major number of a peer's netem, less the minor number of its class."""
_PROBE = 0x1C00 << 16
_LOOPBACK = 1
_FILTERS = 0x80000000
"""Handle of a peer's filter, less the minor number of its class."""
_ETHERNET = 1
_INFO = 1 << 16 | socket.htons(0x0800)
"""Filters of one priority, for IPv4."""
_TICK_NS = 64
_NO_LIMIT = 400e9
_BURST_S = 0.008
"""What a class may send at once makes up for a kernel that wakes late."""
_LEAST_BURST_BYTES = 3200
_QUANTUM_BYTES = 60000
_LONGEST_QUEUE = 50_000
_LEAST_DELAY_S = 0.001
"""Where packets overtake others, those have to be late."""
_GET_ADDRESS = 0x8915


class Shaped(NamedTuple):
    """What left by a class."""

    bytes: int
    packets: int
    dropped: int
    held: int
    """How often something had to wait for its turn."""
    waiting: int
    """How many packets wait for it now."""


def device(address: str) -> int:
    """Number of the device that has this address; 0: none has, as where a cable is out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for number, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asking.fileno(), _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return number
    return 0


class Shaping:
    """The queues of one device."""

    def __init__(self, index: int, route: Netlink) -> None:
        self._index, self._route = index, route

    def make(self, peers: Mapping[str, Mapping[str, float]], cable_bits_per_s: float | None) -> None:
        """Have packets to each of these peers leave like this, and all together no faster than the cable takes them.

        Raises:
            Refused: the kernel cannot.
        """
        if not peers:
            self.remove()
            return
        self._add_root()
        cable = cable_bits_per_s or _NO_LIMIT
        self._class(_CABLE, _HTB, cable, cable)
        queues = {handle for handle, _, _, _ in self._dumped(_QUEUES)}
        for address, asked in peers.items():
            number, most = _number(address), min(asked.get("rate_bits_per_s") or _NO_LIMIT, cable)
            self._class(number, _HTB | _CABLE, min(most, cable / len(peers)), most)
            self._netem(number, asked, there=(_NETEM + number) << 16 in queues)
            self._filter(number, address)
        for number in self._there() - {*map(_number, peers), _CABLE}:
            self._forget(number)

    def remove(self) -> None:
        """Take the root away, if it is there, and all below it."""
        if self.stands():
            self._do(_DELETE_QUEUE, 0, _HTB, _ROOT, b"")

    def stands(self) -> bool:
        """Whether the root is there."""
        return any(handle == _HTB for handle, _, kind, _ in self._dumped(_QUEUES) if kind == "htb")

    def counted(self, peers: list[str]) -> dict[str, Shaped]:
        """What has left for each of these peers since its class was made."""
        numbers = {_number(address): address for address in peers}
        found = {}
        for handle, _, _, body in self._dumped(_CLASSES):
            address = numbers.get(handle & 0xFFFF) if handle & 0xFFFF0000 == _HTB else None
            if address is not None:
                found[address] = _shaped(dict(attributes(body)).get(_STATS, b""))
        return found

    def netems(self) -> list[dict[str, float]]:
        """What each netem below the root is set to, as it says itself."""
        found = []
        for handle, parent, kind, body in self._dumped(_QUEUES):
            if kind == "netem" and parent & 0xFFFF0000 == _HTB and handle:
                found.append(_late(dict(attributes(body)).get(_OPTIONS, b"")))
        return found

    def knows(self, kind: str) -> bool:
        """Whether the kernel has queues of this kind; asked so that nothing is changed."""
        head = struct.pack("=BxHiIII", 0, 0, _LOOPBACK, _PROBE, _ROOT, 0)
        try:
            self._route.do(Message(_NEW_QUEUE, CREATE | EXCLUSIVE, head + attribute(_KIND, kind)))
        except Refused as refused:  # it wants options where it knows the kind
            return refused.errno != ABSENT
        self._route.do(Message(_DELETE_QUEUE, 0, head))
        return True

    # -- one of each

    def _add_root(self) -> None:
        options = nested(_OPTIONS, attribute(2, struct.pack("=5I", 3, 10, 0, 0, 0)))
        try:
            self._do(_NEW_QUEUE, CREATE | EXCLUSIVE, _HTB, _ROOT, attribute(_KIND, "htb") + options)
        except Refused as refused:
            netlink.unless(EXISTS, refused)

    def _class(self, number: int, parent: int, rate: float, most: float) -> None:
        rates = b"".join(struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, _rate32(bits)) for bits in (rate, most))
        options = rates + struct.pack("=5I", _burst(rate), _burst(most), _QUANTUM_BYTES, 0, 0)
        whole = [attribute(6 + place, struct.pack("=Q", int(bits / 8))) for place, bits in enumerate((rate, most))]
        body = attribute(_KIND, "htb") + nested(_OPTIONS, attribute(1, options), *whole)
        self._do(_NEW_CLASS, CREATE, _HTB | number, parent, body)

    def _netem(self, number: int, asked: Mapping[str, float], *, there: bool) -> None:
        handle = (_NETEM + number) << 16
        if not any(asked.get(name) for name in LATE):
            if there:
                self._do(_DELETE_QUEUE, 0, handle, _HTB | number, b"")
            return
        reorder, corrupt = asked.get("reorder", 0.0), asked.get("corrupt", 0.0)
        delay_s = max(asked.get("delay_s", 0.0), _LEAST_DELAY_S if reorder else 0.0)
        jitter_s = asked.get("jitter_s", 0.0)
        head = struct.pack("=6I", 0, _LONGEST_QUEUE, 0, 1 if reorder else 0, 0, 0)
        inside = attribute(3, struct.pack("=2I", _share32(reorder), 0)) + attribute(
            4, struct.pack("=2I", _share32(corrupt), 0)
        )
        inside += attribute(10, struct.pack("=q", round(delay_s * 1e9)))
        inside += attribute(11, struct.pack("=q", round(jitter_s * 1e9)))
        body = attribute(_KIND, "netem") + attribute(_OPTIONS, head + inside)
        self._do(_NEW_QUEUE, CREATE | REPLACE, handle, _HTB | number, body)

    def _filter(self, number: int, address: str) -> None:
        selector = struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0)
        selector += struct.pack("!II", 0xFFFFFFFF, struct.unpack("!I", socket.inet_aton(address))[0])
        selector += struct.pack("=ii", 16, 0)
        body = attribute(_KIND, "u32") + nested(_OPTIONS, attribute(1, _HTB | number), attribute(5, selector))
        try:
            self._do(_NEW_FILTER, CREATE | EXCLUSIVE, _FILTERS | number, _HTB, body, _INFO)
        except Refused as refused:
            netlink.unless(EXISTS, refused)

    def _forget(self, number: int) -> None:
        """Have a peer go its own way again, and forget its class."""
        for kind, handle, parent, info in (
            (_DELETE_FILTER, _FILTERS | number, _HTB, _INFO),
            (_DELETE_CLASS, _HTB | number, 0, 0),
        ):
            try:
                self._do(kind, 0, handle, parent, b"", info)
            except Refused as refused:
                netlink.unless(ABSENT, refused)

    def _there(self) -> set[int]:
        return {handle & 0xFFFF for handle, _, _, _ in self._dumped(_CLASSES) if handle & 0xFFFF0000 == _HTB}

    def _do(self, kind: int, flags: int, handle: int, parent: int, body: bytes, info: int = 0) -> None:
        self._route.do(Message(kind, flags, self._head(handle, parent, info) + body))

    def _head(self, handle: int = 0, parent: int = 0, info: int = 0) -> bytes:
        return struct.pack("=BxHiIII", 0, 0, self._index, handle, parent, info)

    def _dumped(self, kind: int) -> list[tuple[int, int, str, bytes]]:
        """Handle, parent, kind and attributes of the queues or classes of the device."""
        found = []
        for body in self._route.dump(Message(kind, 0, self._head())):
            index, handle, parent = struct.unpack_from("=iII", body, 4)
            if index == self._index:
                name = dict(attributes(body[20:])).get(_KIND, b"").rstrip(b"\0").decode()
                found.append((handle, parent, name, body[20:]))
        return found


def _number(address: str) -> int:
    """The minor number of a peer's class: peers are in one network, and differ at the end of their addresses."""
    host: int = struct.unpack("!I", socket.inet_aton(address))[0] & 0x0FFF
    return host or 0x0FFF


def _rate32(bits: float) -> int:
    return min(int(bits / 8), 0xFFFFFFFF)


def _burst(bits: float) -> int:
    """How long a class may send at once, in ticks of the kernel."""
    return max(1, int(max(_BURST_S, _LEAST_BURST_BYTES * 8 / bits) * 1e9 / _TICK_NS))


def _share32(share: float) -> int:
    return round(share * 0xFFFFFFFF)


def _shaped(data: bytes) -> Shaped:
    told = dict(attributes(data))
    basic, queue = told.get(1, b""), told.get(3, b"")
    sent_bytes, packets = struct.unpack_from("=QI", basic) if len(basic) >= 12 else (0, 0)
    waiting, _, dropped, _, held = struct.unpack_from("=5I", queue) if len(queue) >= 20 else (0,) * 5
    return Shaped(sent_bytes, packets, dropped, held, waiting)


def _late(options: bytes) -> dict[str, float]:
    told = dict(attributes(options[24:]))
    shares = {name: told.get(kind, b"") for name, kind in (("reorder", 3), ("corrupt", 4))}
    times = {name: told.get(kind, b"") for name, kind in (("delay_s", 10), ("jitter_s", 11))}
    found = {name: struct.unpack_from("=I", data)[0] / 0xFFFFFFFF for name, data in shares.items() if len(data) >= 4}
    found |= {name: struct.unpack_from("=q", data)[0] / 1e9 for name, data in times.items() if len(data) >= 8}
    return {name: value for name, value in found.items() if value}
