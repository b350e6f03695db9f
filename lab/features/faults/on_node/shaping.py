"""How fast and how late packets leave a node for each of its peers: an htb class a peer, and netem where it is asked.

Everything hangs below one queue at the root of the device, so that removing that one undoes it all. What goes elsewhere
than to a peer passes it by. Classes and queues are changed in place: packets on their way stay on their way.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyroute2.netlink import NETLINK_ROUTE, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from pyroute2.netlink.rtnl import (
    RTM_DELQDISC,
    RTM_DELTCLASS,
    RTM_DELTFILTER,
    RTM_GETQDISC,
    RTM_GETTCLASS,
    RTM_NEWQDISC,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
    TC_H_ROOT,
)
from pyroute2.netlink.rtnl.tcmsg import cls_u32, sched_htb, sched_netem, tcmsg
from pyroute2.netlink.rtnl.tcmsg.common import percent2u32, tick_in_usec

from .conditions import LATE
from .kernel import ABSENT, EXISTS, Kernel, Refused, filled, unless

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
_INFO = 1 << 16 | socket.htons(0x0800)
"""Filters of one priority, for IPv4."""
_DESTINATION = 16
"""Where in a packet it stands."""
_NO_LIMIT = 400e9
_BURST_S = 0.008
"""What a class may send at once makes up for a kernel that wakes late."""
_LEAST_BURST_BYTES = 3200
_QUANTUM_BYTES = 60000
_LONGEST_QUEUE = 50_000
_LEAST_DELAY_S = 0.001
"""Where packets overtake others, those have to be late."""
_ALL_OF_THEM = 0xFFFFFFFF


class Shaped(NamedTuple):
    """What left by a class."""

    bytes: int
    packets: int
    dropped: int
    held: int
    """How often something had to wait for its turn."""
    waiting: int
    """How many packets wait for it now."""


def route() -> Kernel:
    """A socket to what the kernel knows of devices and their queues."""
    return Kernel(NETLINK_ROUTE, dict.fromkeys((RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER), tcmsg))


class Shaping:
    """The queues of one device."""

    def __init__(self, index: int, route: Kernel) -> None:
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
        queues = {one["handle"] for one in self._dumped(RTM_GETQDISC)}
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
            self._do(RTM_DELQDISC, 0, _HTB, TC_H_ROOT)

    def stands(self) -> bool:
        """Whether the root is there."""
        return any(one["handle"] == _HTB for one in self._dumped(RTM_GETQDISC) if one.get_attr("TCA_KIND") == "htb")

    def counted(self, peers: list[str]) -> dict[str, Shaped]:
        """What has left for each of these peers since its class was made."""
        numbers = {_HTB | _number(address): address for address in peers}
        return {
            numbers[one["handle"]]: _shaped(one.get_attr("TCA_STATS2"))
            for one in self._dumped(RTM_GETTCLASS)
            if one["handle"] in numbers
        }

    def netems(self) -> list[dict[str, float]]:
        """What each netem below the root is set to, as it says itself."""
        return [
            _late(one.get_attr("TCA_OPTIONS"))
            for one in self._dumped(RTM_GETQDISC)
            if one.get_attr("TCA_KIND") == "netem" and one["parent"] & 0xFFFF0000 == _HTB and one["handle"]
        ]

    def knows(self, kind: str) -> bool:
        """Whether the kernel has queues of this kind; asked so that nothing is changed."""
        message = filled(tcmsg(), [("TCA_KIND", kind)], index=_LOOPBACK, handle=_PROBE, parent=TC_H_ROOT)
        try:
            self._route.do(RTM_NEWQDISC, message, NLM_F_CREATE | NLM_F_EXCL)
        except Refused as refused:  # it wants options where it knows the kind
            return refused.errno != ABSENT
        self._route.do(RTM_DELQDISC, filled(tcmsg(), index=_LOOPBACK, handle=_PROBE, parent=TC_H_ROOT))
        return True

    # -- one of each

    def _add_root(self) -> None:
        try:
            options = sched_htb.get_parameters({"default": 0})
            self._do(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, _HTB, TC_H_ROOT, "htb", options)
        except Refused as refused:
            unless(EXISTS, refused)

    def _class(self, number: int, parent: int, rate: float, most: float) -> None:
        asked = {"rate": int(rate / 8), "burst": _burst(rate), "ceil": int(most / 8), "cburst": _burst(most)}
        options = sched_htb.get_class_parameters({**asked, "quantum": _QUANTUM_BYTES})
        self._do(RTM_NEWTCLASS, NLM_F_CREATE, _HTB | number, parent, "htb", options)

    def _netem(self, number: int, asked: Mapping[str, float], *, there: bool) -> None:
        handle = (_NETEM + number) << 16
        if not any(asked.get(name) for name in LATE):
            if there:
                self._do(RTM_DELQDISC, 0, handle, _HTB | number)
            return
        reorder, corrupt = asked.get("reorder", 0.0), asked.get("corrupt", 0.0)
        delay_s = max(asked.get("delay_s", 0.0), _LEAST_DELAY_S if reorder else 0.0)
        times = {"delay": round(delay_s * 1e6), "jitter": round(asked.get("jitter_s", 0.0) * 1e6)}
        options = sched_netem.get_parameters({**times, "limit": _LONGEST_QUEUE})
        options["gap"] = 1 if reorder else 0
        options["attrs"] = [  # what is not said stays as it was
            ("TCA_NETEM_REORDER", {"prob_reorder": percent2u32(reorder * 100)}),
            ("TCA_NETEM_CORRUPT", {"prob_corrupt": percent2u32(corrupt * 100)}),
        ]
        self._do(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, handle, _HTB | number, "netem", options)

    def _filter(self, number: int, address: str) -> None:
        key = f"0x{socket.inet_aton(address).hex()}/0x{_ALL_OF_THEM:x}+{_DESTINATION}"
        options = cls_u32.get_parameters({"target": _HTB | number, "keys": [key]})
        try:
            self._do(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, _FILTERS | number, _HTB, "u32", options, info=_INFO)
        except Refused as refused:
            unless(EXISTS, refused)

    def _forget(self, number: int) -> None:
        """Have a peer go its own way again, and forget its class."""
        for kind, handle, parent, info in (
            (RTM_DELTFILTER, _FILTERS | number, _HTB, _INFO),
            (RTM_DELTCLASS, _HTB | number, 0, 0),
        ):
            try:
                self._do(kind, 0, handle, parent, info=info)
            except Refused as refused:
                unless(ABSENT, refused)

    def _there(self) -> set[int]:
        handles = [one["handle"] for one in self._dumped(RTM_GETTCLASS)]
        return {handle & 0xFFFF for handle in handles if handle & 0xFFFF0000 == _HTB}

    def _do(
        self, kind: int, flags: int, handle: int, parent: int, what: str = "", options: Any = None, info: int = 0
    ) -> None:
        attributes = [("TCA_KIND", what), ("TCA_OPTIONS", options)] if what else []
        message = filled(tcmsg(), attributes, index=self._index, handle=handle, parent=parent, info=info)
        self._route.do(kind, message, flags)

    def _dumped(self, kind: int) -> list[Any]:
        """The queues or classes of the device."""
        found = self._route.dump(kind, filled(tcmsg(), index=self._index))
        return [one for one in found if one["index"] == self._index]


def _number(address: str) -> int:
    """The minor number of a peer's class: peers are in one network, and differ at the end of their addresses."""
    return int.from_bytes(socket.inet_aton(address), "big") & 0x0FFF or 0x0FFF


def _burst(bits: float) -> int:
    """How many bytes a class may send at once."""
    return max(_LEAST_BURST_BYTES, int(_BURST_S * bits / 8))


def _shaped(told: Any) -> Shaped:
    basic, queue = told.get_attr("TCA_STATS_BASIC"), told.get_attr("TCA_STATS_QUEUE")
    return Shaped(basic["bytes"], basic["packets"], queue["drops"], queue["overlimits"], queue["qlen"])


def _late(options: Any) -> dict[str, float]:
    found = {
        name: options[field] / tick_in_usec / 1e6 for name, field in (("delay_s", "delay"), ("jitter_s", "jitter"))
    }
    for name, kind in (("reorder", "TCA_NETEM_REORDER"), ("corrupt", "TCA_NETEM_CORRUPT")):
        told = options.get_attr(kind)
        found[name] = told[f"prob_{name}"] / _ALL_OF_THEM if told is not None else 0.0
    return {name: value for name, value in found.items() if value}
