"""What the kernel is told of packets over netlink, by pyroute2: how they leave a node, and which do not arrive.

- An htb class for each peer, and netem where it is asked, all below one queue at the root of the device, so that
  removing that one undoes it all. What goes elsewhere than to a peer passes it by. Classes and queues are changed in
  place: packets on their way stay on their way.
- One nf_tables table of the lab's own, each rule with a counter. Packets are lost where they arrive, not where they are
  sent: a sender whose own kernel drops a packet knows of it. The table is replaced as a whole, in one transaction: no
  packet sees a half of it.
- Open TCP connections to a peer are reset: who only waits on one would never hear of it otherwise.

Only what is used of pyroute2 is imported, and only where links are made: all of it takes half a second.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyroute2 import netlink as nl
from pyroute2.netlink import diag, rtnl
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg
from pyroute2.netlink.nfnetlink import nftsocket as nft
from pyroute2.netlink.nlsocket import NetlinkSocket
from pyroute2.netlink.rtnl.tcmsg import cls_u32, sched_htb, sched_netem, tcmsg
from pyroute2.netlink.rtnl.tcmsg.common import percent2u32, tick_in_usec
from pyroute2.nftables.expressions import ipv4addr, verdict

from . import LATE

_EXISTS, _ABSENT = errno.EEXIST, errno.ENOENT
_NEW = nl.NLM_F_CREATE | nl.NLM_F_EXCL


class Refused(OSError):
    """The kernel does not do it."""

    def __str__(self) -> str:
        return f"its kernel refuses that: {self.strerror}"


class Kernel:
    """A socket to one part of the kernel; use it in a `with`.

    Args:
        family: the part, a number of netlink's.
        answers: what its answers are read as, by the type of message.
    """

    def __init__(self, family: int, answers: Mapping[int, type[Any]]) -> None:
        self._socket = NetlinkSocket(family=family, ext_ack=True)
        self._socket.bind()
        self._socket.register_policy(dict(answers))

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def do(self, kind: int, message: Any, flags: int = 0, *, unless: int = 0) -> bool:
        """Send one request and wait until it is done; returns False where it is refused for this reason.

        Raises:
            Refused: it is not done for another reason.
        """
        request = self._socket.nlm_request
        return self._call(request, message, kind, nl.NLM_F_REQUEST | nl.NLM_F_ACK | flags, unless=unless) is not None

    def do_all(self, messages: Sequence[Any]) -> None:
        """Send requests as one, and wait for an answer to each that asks for one; their headers are complete.

        Raises:
            Refused: the first that was not done.
        """
        self._call(self._socket.nlm_request_batch, messages)

    def dump(self, kind: int, message: Any) -> list[Any]:
        """All that a question finds; nothing where what it is about is not there.

        Raises:
            Refused: it cannot be asked.
        """
        request = self._socket.nlm_request
        return self._call(request, message, kind, nl.NLM_F_REQUEST | nl.NLM_F_DUMP, unless=_ABSENT) or []

    def _call(self, request: Callable[..., Any], *arguments: Any, unless: int = 0) -> list[Any] | None:
        try:
            return list(request(*arguments) or ())
        except NetlinkError as error:
            if error.code == unless:
                return None
            raise Refused(error.code, error.args[-1]) from None


def filled(message: Any, attributes: Sequence[tuple[str, Any]] = (), **fields: int) -> Any:
    """A message of pyroute2's with these fields and attributes."""
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = list(attributes)
    return message


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
    """What a class has sent."""

    bytes: int
    waiting: int
    """How many packets wait for their turn now."""


def route() -> Kernel:
    """A socket to what the kernel knows of devices and their queues."""
    return Kernel(nl.NETLINK_ROUTE, dict.fromkeys((rtnl.RTM_NEWQDISC, rtnl.RTM_NEWTCLASS, rtnl.RTM_NEWTFILTER), tcmsg))


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
        root = sched_htb.get_parameters({"default": 0})
        self._do(rtnl.RTM_NEWQDISC, _HTB, rtnl.TC_H_ROOT, "htb", root, flags=_NEW, unless=_EXISTS)
        cable = cable_bits_per_s or _NO_LIMIT
        self._class(_CABLE, _HTB, cable, cable)
        queues = {one["handle"] for one in self._dumped(rtnl.RTM_GETQDISC)}
        for address, asked in peers.items():
            number, most = _number(address), min(asked.get("rate_bits_per_s") or _NO_LIMIT, cable)
            self._class(number, _HTB | _CABLE, min(most, cable / len(peers)), most)
            self._netem(number, asked, there=(_NETEM + number) << 16 in queues)
            key = f"0x{socket.inet_aton(address).hex()}/0x{_ALL_OF_THEM:x}+{_DESTINATION}"
            options = cls_u32.get_parameters({"target": _HTB | number, "keys": [key]})
            handle = _FILTERS | number
            self._do(rtnl.RTM_NEWTFILTER, handle, _HTB, "u32", options, flags=_NEW, info=_INFO, unless=_EXISTS)
        known = {_HTB | number for number in (*map(_number, peers), _CABLE)}
        for handle in {one["handle"] for one in self._dumped(rtnl.RTM_GETTCLASS)} - known:
            if handle & 0xFFFF0000 == _HTB:  # packets to these peers go their own way
                self._do(rtnl.RTM_DELTFILTER, _FILTERS | handle & 0xFFFF, _HTB, info=_INFO, unless=_ABSENT)
                self._do(rtnl.RTM_DELTCLASS, handle, 0, unless=_ABSENT)

    def remove(self) -> None:
        """Take the root away, if it is there, and all below it."""
        if self.stands():
            self._do(rtnl.RTM_DELQDISC, _HTB, rtnl.TC_H_ROOT)

    def stands(self) -> bool:
        """Whether the root is there."""
        queues = self._dumped(rtnl.RTM_GETQDISC)
        return any(one["handle"] == _HTB and one.get_attr("TCA_KIND") == "htb" for one in queues)

    def counted(self, peers: list[str]) -> dict[str, Shaped]:
        """What has left for each of these peers since its class was made."""
        numbers, shaped = {_HTB | _number(address): address for address in peers}, {}
        for one in self._dumped(rtnl.RTM_GETTCLASS):
            if one["handle"] in numbers:
                told = one.get_attr("TCA_STATS2")
                sent, waiting = told.get_attr("TCA_STATS_BASIC")["bytes"], told.get_attr("TCA_STATS_QUEUE")["qlen"]
                shaped[numbers[one["handle"]]] = Shaped(sent, waiting)
        return shaped

    def netems(self) -> list[dict[str, float]]:
        """What each netem below the root is set to, as it says itself."""
        return [
            _netem_conditions(one.get_attr("TCA_OPTIONS"))
            for one in self._dumped(rtnl.RTM_GETQDISC)
            if one.get_attr("TCA_KIND") == "netem" and one["parent"] & 0xFFFF0000 == _HTB and one["handle"]
        ]

    def knows(self, kind: str) -> bool:
        """Whether the kernel has queues of this kind; asked so that nothing is changed."""
        message = filled(tcmsg(), [("TCA_KIND", kind)], index=_LOOPBACK, handle=_PROBE, parent=rtnl.TC_H_ROOT)
        try:
            self._route.do(rtnl.RTM_NEWQDISC, message, _NEW)
        except Refused as refused:  # it wants options where it knows the kind
            return refused.errno != _ABSENT
        self._route.do(rtnl.RTM_DELQDISC, filled(tcmsg(), index=_LOOPBACK, handle=_PROBE, parent=rtnl.TC_H_ROOT))
        return True

    def _class(self, number: int, parent: int, rate: float, most: float) -> None:
        asked = {"rate": int(rate / 8), "burst": _burst(rate), "ceil": int(most / 8), "cburst": _burst(most)}
        options = sched_htb.get_class_parameters({**asked, "quantum": _QUANTUM_BYTES})
        self._do(rtnl.RTM_NEWTCLASS, _HTB | number, parent, "htb", options, flags=nl.NLM_F_CREATE)

    def _netem(self, number: int, asked: Mapping[str, float], *, there: bool) -> None:
        handle, parent = (_NETEM + number) << 16, _HTB | number
        if not any(asked.get(name) for name in LATE):
            if there:
                self._do(rtnl.RTM_DELQDISC, handle, parent)
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
        flags = nl.NLM_F_CREATE | nl.NLM_F_REPLACE
        self._do(rtnl.RTM_NEWQDISC, handle, parent, "netem", options, flags=flags)

    def _do(
        self, kind: int, handle: int, parent: int, what: str = "", options: Any = None, *, info: int = 0, **how: int
    ) -> None:
        """Make, change or remove a queue, class or filter; `how`: the flags and the `unless` of `Kernel.do`."""
        attributes = [("TCA_KIND", what), ("TCA_OPTIONS", options)] if what else []
        message = filled(tcmsg(), attributes, index=self._index, handle=handle, parent=parent, info=info)
        self._route.do(kind, message, **how)

    def _dumped(self, kind: int) -> list[Any]:
        """The queues or classes of the device."""
        answers = self._route.dump(kind, filled(tcmsg(), index=self._index))
        return [one for one in answers if one["index"] == self._index]


def _number(address: str) -> int:
    """The minor number of a peer's class: peers are in one network, and differ at the end of their addresses."""
    return int.from_bytes(socket.inet_aton(address), "big") & 0x0FFF or 0x0FFF


def _burst(bits: float) -> int:
    """How many bytes a class may send at once."""
    return max(_LEAST_BURST_BYTES, int(_BURST_S * bits / 8))


def _netem_conditions(options: Any) -> dict[str, float]:
    conditions = {f"{name}_s": options[name] / tick_in_usec / 1e6 for name in ("delay", "jitter")}
    for name in ("reorder", "corrupt"):
        told = options.get_attr(f"TCA_NETEM_{name.upper()}")
        conditions[name] = told[f"prob_{name}"] / _ALL_OF_THEM if told is not None else 0.0
    return {name: value for name, value in conditions.items() if value}


NAME = "lab"
NAMES = "names"
"""What is counted of questions for names; else a word and the address of a peer: `drop 10.0.0.2`."""
_SUBSYSTEM = NFNL_SUBSYS_NFTABLES << 8
_BEGIN, _END = 0x10, 0x11
_ARRIVES, _LEAVES = "arrives", "leaves"
_HOOKS = {_ARRIVES: 1, _LEAVES: 3}
_BEFORE_OTHERS = -150
"""After connections are known, before addresses are changed (Docker gives its resolver another port there)."""
_TRANSPORT = 2
_DNS = 53
_RST = 0x04
_PARTS = 1 << 24
_RANDOM = 1
_TO_WIRE = 1
_REGISTER = 1
_DROP = 0
_UNREACHABLE, _RESET = 0, 1
_PORT_UNREACHABLE = 3


def filters() -> Kernel:
    """A socket to the kernel's packet filters."""
    return Kernel(nl.NETLINK_NETFILTER, {_SUBSYSTEM | kind: read for kind, read in nft.AsyncNFTSocket.policy.items()})


def set_rules(arriving: Mapping[str, Mapping[str, float]], leaving: Mapping[str, float], *, names: bool) -> list[Any]:
    """The rules, each a message.

    Args:
        arriving: by address of the sender, the shares of its packets that are to `reset`, `drop` or be lost (`loss`).
        leaving: by address of a peer, the share of packets to it that are sent twice.
        names: whether names can be asked for.
    """
    rules = []
    for address, asked in arriving.items():
        sent_by = ipv4addr(src=address)
        if asked.get("reset"):
            parts = [*sent_by, *_protocol(socket.IPPROTO_TCP), *_no_reset(), _COUNT, _reject(_RESET)]
            rules.append(_rule(_ARRIVES, f"reset {address}", parts))
        if asked.get("drop"):
            rules.append(_rule(_ARRIVES, f"drop {address}", [*sent_by, _COUNT, *verdict(_DROP)]))
        elif asked.get("loss"):
            rules.append(_rule(_ARRIVES, f"from {address}", [*sent_by, _COUNT]))
            parts = [*sent_by, *_by_chance(asked["loss"]), _COUNT, *verdict(_DROP)]
            rules.append(_rule(_ARRIVES, f"loss {address}", parts))
    for address, share in leaving.items():
        sent_to = ipv4addr(dst=address)
        rules.append(_rule(_LEAVES, f"to {address}", [*sent_to, _COUNT]))
        again = _part("immediate", DREG=_REGISTER, DATA=_data(socket.inet_aton(address)))
        parts = [*sent_to, *_by_chance(share), _COUNT, again, _part("dup", SREG_ADDR=_REGISTER)]
        rules.append(_rule(_LEAVES, f"duplicate {address}", parts))
    if not names:
        asks = [_load(_TRANSPORT, 2, 2), _compare(_DNS.to_bytes(2, "big")), _COUNT]
        for protocol, answer in ((socket.IPPROTO_UDP, _UNREACHABLE), (socket.IPPROTO_TCP, _RESET)):
            rules.append(_rule(_LEAVES, NAMES, [*_protocol(protocol), *asks, _reject(answer)]))
    return rules


def replace(filters: Kernel, rules: list[Any]) -> None:
    """Have these rules and no others; without any, no table.

    Raises:
        Refused: the kernel cannot.
    """
    if not stands(filters) and not rules:
        return

    def table(kind: int, flags: int = nl.NLM_F_CREATE) -> Any:
        return _message(kind, nft.nft_table_msg(), [("NFTA_TABLE_NAME", NAME)], flags)

    messages = [table(nft.NFT_MSG_NEWTABLE), table(nft.NFT_MSG_DELTABLE, 0)]  # one to delete is there
    if rules:
        messages += [table(nft.NFT_MSG_NEWTABLE), *(_chain(*chain) for chain in _HOOKS.items()), *rules]
    filters.do_all([_edge(_BEGIN), *messages, _edge(_END)])


def count_packets(filters: Kernel) -> dict[str, int]:
    """How many packets the rules of the table have met, by what they are for."""
    packets = Counter[str]()
    for rule in _dumped(filters, nft.NFT_MSG_GETRULE, nft.nft_rule_msg(), [("NFTA_RULE_TABLE", NAME)]):
        for part in rule.get_attr("NFTA_RULE_EXPRESSIONS") if rule.get_attr("NFTA_RULE_TABLE") == NAME else ():
            if part.get_attr("NFTA_EXPR_NAME") == "counter":
                met = part.get_attr("NFTA_EXPR_DATA").get_attr("NFTA_COUNTER_PACKETS")
                packets[rule.get_attr("NFTA_RULE_USERDATA")] += met
    return dict(packets)


def stands(filters: Kernel) -> bool:
    """Whether the table is there."""
    tables = _dumped(filters, nft.NFT_MSG_GETTABLE, nft.nft_table_msg(), [])
    return any(table.get_attr("NFTA_TABLE_NAME") == NAME for table in tables)


def _dumped(filters: Kernel, kind: int, message: Any, attributes: list[tuple[str, Any]]) -> list[Any]:
    return filters.dump(_SUBSYSTEM | kind, filled(message, attributes, nfgen_family=nft.NFPROTO_IPV4))


# -- messages of a transaction


def _message(kind: int, message: Any, attributes: list[tuple[str, Any]], flags: int) -> Any:
    message["header"]["type"] = _SUBSYSTEM | kind
    message["header"]["flags"] = nl.NLM_F_REQUEST | nl.NLM_F_ACK | flags
    return filled(message, attributes, nfgen_family=nft.NFPROTO_IPV4)


def _edge(kind: int) -> Any:
    message = filled(nfgen_msg(), res_id=NFNL_SUBSYS_NFTABLES)
    message["header"]["type"], message["header"]["flags"] = kind, nl.NLM_F_REQUEST
    return message


def _chain(name: str, hook: int) -> Any:
    at = _nested(NFTA_HOOK_HOOKNUM=hook, NFTA_HOOK_PRIORITY=_BEFORE_OTHERS)
    told = [("NFTA_CHAIN_TABLE", NAME), ("NFTA_CHAIN_NAME", name), ("NFTA_CHAIN_HOOK", at)]
    return _message(nft.NFT_MSG_NEWCHAIN, nft.nft_chain_msg(), [*told, ("NFTA_CHAIN_TYPE", "filter")], nl.NLM_F_CREATE)


def _rule(chain: str, name: str, parts: Iterable[Any]) -> Any:
    where, what = [("NFTA_RULE_TABLE", NAME), ("NFTA_RULE_CHAIN", chain)], ("NFTA_RULE_EXPRESSIONS", list(parts))
    told = [*where, what, ("NFTA_RULE_USERDATA", name)]
    return _message(nft.NFT_MSG_NEWRULE, nft.nft_rule_msg(), told, nl.NLM_F_CREATE | nl.NLM_F_APPEND)


# -- parts of rules


def _nested(**attributes: Any) -> dict[str, Any]:
    return {"attrs": list(attributes.items())}


def _part(name: str, **attributes: Any) -> dict[str, Any]:
    prefix = {"numgen": "NG"}.get(name, name.upper())
    data = _nested(**{f"NFTA_{prefix}_{attribute}": value for attribute, value in attributes.items()})
    return _nested(NFTA_EXPR_NAME=name, NFTA_EXPR_DATA=data)


def _data(value: bytes) -> dict[str, Any]:
    return _nested(NFTA_DATA_VALUE=value)


def _compare(value: bytes, how: nft.Cmp = nft.Cmp.NFT_CMP_EQ) -> dict[str, Any]:
    return _part("cmp", SREG=_REGISTER, OP=how, DATA=_data(value))


def _load(base: int, offset: int, size: int) -> dict[str, Any]:
    return _part("payload", DREG=_REGISTER, BASE=base, OFFSET=offset, LEN=size)


def _protocol(number: int) -> list[Any]:
    return [_part("meta", DREG=_REGISTER, KEY=nft.Meta.NFT_META_L4PROTO), _compare(bytes([number]))]


def _no_reset() -> list[Any]:
    """Not itself the reset of a connection: that one has to arrive."""
    mask, flip = _data(bytes([_RST])), _data(b"\0")
    masked = _part("bitwise", SREG=_REGISTER, DREG=_REGISTER, LEN=1, MASK=mask, XOR=flip)
    return [_load(_TRANSPORT, 13, 1), masked, _compare(b"\0")]


def _by_chance(share: float) -> list[Any]:
    drawn = _part("numgen", DREG=_REGISTER, MODULUS=_PARTS, TYPE=_RANDOM)
    ordered = _part("byteorder", SREG=_REGISTER, DREG=_REGISTER, OP=_TO_WIRE, LEN=4, SIZE=4)
    return [drawn, ordered, _compare(round(share * _PARTS).to_bytes(4, "big"), nft.Cmp.NFT_CMP_LT)]


def _reject(how: int) -> dict[str, Any]:
    return _part("reject", TYPE=how, ICMP_CODE=_PORT_UNREACHABLE)


_COUNT = _part("counter")


_OPEN = diag.SS_ALL & ~(1 << diag.SS_TIME_WAIT | 1 << diag.SS_CLOSE | 1 << diag.SS_LISTEN)
_MAPPED = "::ffff:"
"""How an IPv6 address begins that is an IPv4 one."""
_NAME = ("idiag_sport", "idiag_dport", "idiag_if", "idiag_cookie")


def reset_connections(peers: Collection[str]) -> int:
    """Reset every connection to one of these addresses, both ends of it; returns how many there were.

    The other end is told by a packet, its own by its kernel, which calls it aborted.

    Raises:
        OSError: the kernel cannot (CONFIG_INET_DIAG_DESTROY).
    """
    ends = {*peers, *(_MAPPED + peer for peer in peers)}
    count = 0
    with Kernel(nl.NETLINK_SOCK_DIAG, {diag.SOCK_DIAG_BY_FAMILY: diag.inet_diag_msg}) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            for found in kernel.dump(diag.SOCK_DIAG_BY_FAMILY, _asked(family)):
                if found["idiag_dst"] in ends:  # unless it has just ended
                    count += kernel.do(diag.SOCK_DESTROY, _asked(family, found), unless=_ABSENT)
    return count


def _asked(family: int, one: Any = None) -> Any:
    """A request about all open connections of a family, or about one of them."""
    request = filled(diag.inet_diag_req(), sdiag_family=family, sdiag_protocol=socket.IPPROTO_TCP, idiag_states=_OPEN)
    if one is not None:
        filled(request, **{name: one[name] for name in _NAME})
        for name in ("idiag_src", "idiag_dst"):
            packed = socket.inet_pton(family, one[name])
            words = [int.from_bytes(packed[at : at + 4], "big") for at in range(0, len(packed), 4)]
            request[name] = (*words, 0, 0, 0)[:4]
    return request
