"""Tables of packet filters, set over netlink; numbers are those of <linux/netfilter/nf_tables.h>."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....node import netlink

IPV4, IPV6 = 2, 10
BEFORE_ROUTING, INPUT, OUTPUT = 0, 1, 3
"""Hooks of chains."""
DROP, ACCEPT = 0, 1
EQUAL, UNEQUAL, LESS, AT_MOST, AT_LEAST = 0, 1, 2, 3, 5
NETWORK, TRANSPORT = 1, 2
"""Headers of a packet."""
SOURCE, DESTINATION, TCP_FLAGS, PORT = 12, 16, 13, 2
"""Offsets in the header; PORT is the receiver's."""
ORIGIN, DEVICE, PROTOCOL = 4, 5, 16
"""Metadata of a packet: its incoming device, its outgoing device, and its protocol."""
_SUBSYSTEM = 10
_NEW_TABLE, _TABLES, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE, _RULES = 0, 1, 2, 3, 6, 7
_BEGIN, _END = 0x10, 0x11
_REGISTER = 1
_LOOPBACK = 1
"""Number of the loopback device in every network namespace."""


class Chain(NamedTuple):
    """A list of rules for packets."""

    name: str
    hook: int
    priority: int
    """Chains with a lower one come first."""
    policy: int = ACCEPT
    """Verdict on a packet that no rule decides on."""


class Rule(NamedTuple):
    """One rule of a chain."""

    chain: str
    parts: Sequence[bytes]
    comment: str = ""


def replace_table(family: int, name: str, chains: Sequence[Chain], rules: Sequence[Rule]) -> None:
    """Replace the table of this name by one with these rules, in one transaction; without rules, remove it.

    Raises:
        OSError: the kernel refuses, and keeps the previous table.
    """
    table = netlink.encode_attribute(1, _text(name))
    requests = [(_NEW_TABLE, table), (_DELETE_TABLE, table)]  # made first, so that there is one to delete
    if rules:
        requests += [(_NEW_TABLE, table), *((_NEW_CHAIN, table + _chain(one)) for one in chains)]
        requests += [(_NEW_RULE, table + _rule(one)) for one in rules]
    flags = netlink.ACK | netlink.CREATE | netlink.APPEND
    whole = [netlink.encode_request(_SUBSYSTEM << 8 | kind, flags, _head(family) + body) for kind, body in requests]
    begin, end = (netlink.encode_request(kind, 0, _head(0, _SUBSYSTEM)) for kind in (_BEGIN, _END))
    netlink.send_requests(netlink.NETFILTER, [begin, *whole, end], answers=len(whole))


def has_table(family: int, name: str) -> bool:
    """Return whether there is a table of this name."""
    return any(attributes.get(1) == _text(name) for attributes in _dumped(_TABLES, family))


def count_packets(family: int, name: str) -> dict[str, int]:
    """Return the number of packets that the counting rules of a table have matched, by comment."""
    packets: dict[str, int] = {}
    for attributes in _dumped(_RULES, family):
        for _, item in netlink.read_attributes(attributes.get(4, b"") if attributes.get(1) == _text(name) else b""):
            expression = dict(netlink.read_attributes(item))
            if expression[1] == _text("counter"):
                met = dict(netlink.read_attributes(expression[2]))[2]
                comment = attributes.get(7, b"").decode()
                packets[comment] = packets.get(comment, 0) + int.from_bytes(met, "big")
    return packets


def _dumped(kind: int, family: int) -> list[Mapping[int, bytes]]:
    question = netlink.encode_request(_SUBSYSTEM << 8 | kind, netlink.DUMP, _head(family))
    return [dict(netlink.read_attributes(body[4:])) for body in netlink.send_requests(netlink.NETFILTER, [question])]


def _head(family: int, subsystem: int = 0) -> bytes:
    return struct.pack(">BBH", family, 0, subsystem)


def _chain(chain: Chain) -> bytes:
    at = netlink.encode_nested(4, _number(1, chain.hook), _number(2, chain.priority & 0xFFFFFFFF))
    named = netlink.encode_attribute(3, _text(chain.name))
    return named + at + _number(5, chain.policy) + netlink.encode_attribute(7, _text("filter"))


def _rule(rule: Rule) -> bytes:
    comment = netlink.encode_attribute(7, rule.comment.encode()) if rule.comment else b""
    return netlink.encode_attribute(2, _text(rule.chain)) + netlink.encode_nested(4, *rule.parts) + comment


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _number(kind: int, value: int) -> bytes:
    return netlink.encode_attribute(kind, struct.pack(">I", value))


# -- expressions of rules; one loads bytes, and the next compares them


def encode_expression(name: str, *attributes: int | bytes) -> bytes:
    """Encode an expression by its name, with attributes numbered from 1: a number, or its bytes as they are."""
    numbered = [_number(at, one) if isinstance(one, int) else one for at, one in enumerate(attributes, 1)]
    return netlink.encode_nested(1, netlink.encode_attribute(1, _text(name)), netlink.encode_nested(2, *numbered))


def _data(kind: int, value: bytes) -> bytes:
    return netlink.encode_nested(kind, netlink.encode_attribute(1, value))


def load_bytes(header: int, offset: int, size: int) -> bytes:
    """Load bytes of the packet."""
    return encode_expression("payload", _REGISTER, header, offset, size)


def load_meta(what: int) -> bytes:
    """Load ORIGIN, DEVICE, or PROTOCOL."""
    return encode_expression("meta", _REGISTER, what)


def compare_loaded(value: bytes, how: int = EQUAL) -> bytes:
    """Continue only if the comparison of the loaded bytes with the value holds."""
    return encode_expression("cmp", _REGISTER, how, _data(3, value))


def mask_loaded(bits: bytes) -> bytes:
    """Keep these bits of the loaded bytes."""
    return encode_expression("bitwise", _REGISTER, _REGISTER, len(bits), _data(4, bits), _data(5, bytes(len(bits))))


def match_address(which: int, how: int, value: str) -> list[bytes]:
    """Continue only if the comparison of the SOURCE or DESTINATION with an address holds."""
    return [load_bytes(NETWORK, which, 4), compare_loaded(socket.inet_aton(value), how)]


def match_protocol(number: int, how: int = EQUAL) -> list[bytes]:
    """Continue only if the packet is of this protocol, or with UNEQUAL of another one."""
    return [load_meta(PROTOCOL), compare_loaded(bytes([number]), how)]


def match_loopback(device: int) -> list[bytes]:
    """Continue only if the ORIGIN or DEVICE of the packet is the loopback."""
    return [load_meta(device), compare_loaded(struct.pack("=I", _LOOPBACK))]


def match_randomly(share: float) -> list[bytes]:
    """Continue with this share of the packets."""
    parts = 1 << 24
    drawn = encode_expression("numgen", _REGISTER, parts, 1)
    ordered = encode_expression("byteorder", _REGISTER, _REGISTER, 1, 4, 4)
    return [drawn, ordered, compare_loaded(round(share * parts).to_bytes(4, "big"), LESS)]


def duplicate_packet(to: str) -> list[bytes]:
    """Send the packet a second time, to this address."""
    target = encode_expression("immediate", _REGISTER, _data(2, socket.inet_aton(to)))
    return [target, encode_expression("dup", _REGISTER)]


def reject_packet(kind: int) -> bytes:
    """Refuse the packet: 0 with a message that its port is closed, 1 with a reset of its connection."""
    return encode_expression("reject", kind, netlink.encode_attribute(2, b"\3"))


def set_verdict(code: int) -> bytes:
    """DROP or ACCEPT the packet."""
    return encode_expression("immediate", 0, netlink.encode_nested(2, netlink.encode_nested(2, _number(1, code))))
