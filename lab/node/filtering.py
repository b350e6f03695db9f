"""Which packets a node drops, refuses or sends twice: one nf_tables table of the lab's own, each rule with a counter.

Packets are lost where they arrive, not where they are sent: a sender whose own kernel drops a packet knows of it.
The table is replaced as a whole, in one transaction: no packet sees a half of it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from . import netlink
from .netlink import ABSENT, ACK, APPEND, CREATE, Message, Netlink, Refused, attribute, attributes, nested

NAME = "lab"
NAMES = "names"
"""What is counted of questions for names; else a word and the address of a peer: `drop 10.0.0.2`."""
_SUBSYSTEM = 10 << 8
_BEGIN, _END = 0x10, 0x11
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE, _RULES = 0, 2, 3, 6, 7
_IPV4 = 2
_ARRIVES, _LEAVES = "arrives", "leaves"
_HOOKS = {_ARRIVES: 1, _LEAVES: 3}
_BEFORE_OTHERS = -150
"""After connections are known, before addresses are changed (Docker gives its resolver another port there)."""
_SOURCE, _DESTINATION = 12, 16
_TCP, _UDP = 6, 17
_DNS = 53
_RST = 0x04
_PARTS = 1 << 24
_EQUAL, _LESS = 0, 2
_DROP = 0
_UNREACHABLE, _RESET = 0, 1
_PORT_UNREACHABLE = 3


class Counted(NamedTuple):
    """What a rule has met."""

    packets: int
    bytes: int


def set_rules(arriving: Mapping[str, Mapping[str, float]], leaving: Mapping[str, float], *, names: bool) -> list[bytes]:
    """The rules, each a whole message's body.

    Args:
        arriving: by address of the sender, the shares of its packets that are to `reset`, `drop` or be lost (`loss`).
        leaving: by address of a peer, the share of packets to it that are sent twice.
        names: whether names can be asked for.
    """
    rules = []
    for address, asked in arriving.items():
        if asked.get("reset"):
            parts = [*_is(_SOURCE, address), *_protocol(_TCP), *_no_reset()]
            rules.append(_rule(_ARRIVES, f"reset {address}", [*parts, _COUNT, _reject(_RESET)]))
        if asked.get("drop"):
            rules.append(_rule(_ARRIVES, f"drop {address}", [*_is(_SOURCE, address), _COUNT, _verdict(_DROP)]))
        elif asked.get("loss"):
            rules.append(_rule(_ARRIVES, f"from {address}", [*_is(_SOURCE, address), _COUNT]))
            parts = [*_is(_SOURCE, address), *_by_chance(asked["loss"])]
            rules.append(_rule(_ARRIVES, f"loss {address}", [*parts, _COUNT, _verdict(_DROP)]))
    for address, share in leaving.items():
        rules.append(_rule(_LEAVES, f"to {address}", [*_is(_DESTINATION, address), _COUNT]))
        parts = [*_is(_DESTINATION, address), *_by_chance(share)]
        rules.append(_rule(_LEAVES, f"duplicate {address}", [*parts, _COUNT, *_again(address)]))
    if not names:
        for protocol, answer in ((_UDP, _reject(_UNREACHABLE)), (_TCP, _reject(_RESET))):
            rules.append(_rule(_LEAVES, NAMES, [*_protocol(protocol), *_port(_DNS), _COUNT, answer]))
    return rules


def replace(filters: Netlink, rules: list[bytes]) -> None:
    """Have these rules and no others; without any, no table.

    Raises:
        Refused: the kernel cannot.
    """
    if not rules and not stands(filters):
        return
    table = attribute(1, NAME)
    messages = [(_NEW_TABLE, CREATE, table), (_DELETE_TABLE, 0, table)]  # made first, so that there is one to delete
    if rules:
        messages.append((_NEW_TABLE, CREATE, table))
        for chain, hook in _HOOKS.items():
            at = nested(4, attribute(1, struct.pack("!I", hook)), attribute(2, struct.pack("!i", _BEFORE_OTHERS)))
            body = table + attribute(3, chain) + at + attribute(7, "filter")
            messages.append((_NEW_CHAIN, CREATE, body))
        messages += [(_NEW_RULE, CREATE | APPEND, rule) for rule in rules]
    head = struct.pack("!BBH", 0, 0, 10)
    own = struct.pack("!BBH", _IPV4, 0, 0)
    filters.do_all(
        [
            Message(_BEGIN, 0, head),
            *(Message(_SUBSYSTEM | kind, flags | ACK, own + body) for kind, flags, body in messages),
            Message(_END, 0, head),
        ]
    )


def counted(filters: Netlink) -> dict[str, Counted]:
    """What each rule of the table has met, by what it is for."""
    found: dict[str, Counted] = {}
    try:
        rules = filters.dump(Message(_SUBSYSTEM | _RULES, 0, struct.pack("!BBH", _IPV4, 0, 0) + attribute(1, NAME)))
    except Refused as refused:
        netlink.unless(ABSENT, refused)
        return {}
    for body in rules:
        told = dict(attributes(body[4:]))
        if told.get(1, b"").rstrip(b"\0").decode() == NAME:
            name, more = _comment(told.get(7, b"")), _counter(told.get(4, b""))
            met = found.get(name, Counted(0, 0))
            found[name] = Counted(met.packets + more.packets, met.bytes + more.bytes)
    return found


def stands(filters: Netlink) -> bool:
    """Whether the table is there."""
    tables = filters.dump(Message(_SUBSYSTEM | 1, 0, struct.pack("!BBH", _IPV4, 0, 0)))
    return any(dict(attributes(body[4:])).get(1, b"").rstrip(b"\0").decode() == NAME for body in tables)


# -- parts of rules


def _rule(chain: str, name: str, parts: Iterable[bytes]) -> bytes:
    comment = name.encode() + b"\0"
    told = attribute(7, struct.pack("BB", 0, len(comment)) + comment)
    return attribute(1, NAME) + attribute(2, chain) + nested(4, *parts) + told


def _part(name: str, *inside: bytes) -> bytes:
    return nested(1, attribute(1, name), nested(2, *inside))


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("!I", value))


def _compare(data: bytes, how: int = _EQUAL) -> bytes:
    return _part("cmp", _number(1, 1), _number(2, how), nested(3, attribute(1, data)))


def _load(base: int, offset: int, size: int) -> bytes:
    return _part("payload", _number(1, 1), _number(2, base), _number(3, offset), _number(4, size))


def _is(offset: int, address: str) -> list[bytes]:
    return [_load(1, offset, 4), _compare(socket.inet_aton(address))]


def _protocol(number: int) -> list[bytes]:
    return [_part("meta", _number(1, 1), _number(2, 16)), _compare(bytes([number]))]


def _port(number: int) -> list[bytes]:
    return [_load(2, 2, 2), _compare(struct.pack("!H", number))]


def _no_reset() -> list[bytes]:
    """Not itself the reset of a connection: that one has to arrive."""
    mask, zero = nested(4, attribute(1, bytes([_RST]))), nested(5, attribute(1, b"\0"))
    return [_load(2, 13, 1), _part("bitwise", _number(1, 1), _number(2, 1), _number(3, 1), mask, zero), _compare(b"\0")]


def _by_chance(share: float) -> list[bytes]:
    drawn = _part("numgen", _number(1, 1), _number(2, _PARTS), _number(3, 1))
    ordered = _part("byteorder", _number(1, 1), _number(2, 1), _number(3, 1), _number(4, 4), _number(5, 4))
    return [drawn, ordered, _compare(struct.pack("!I", round(share * _PARTS)), _LESS)]


def _again(address: str) -> list[bytes]:
    whither = _part("immediate", _number(1, 1), nested(2, attribute(1, socket.inet_aton(address))))
    return [whither, _part("dup", _number(1, 1))]


def _reject(how: int) -> bytes:
    return _part("reject", _number(1, how), attribute(2, bytes([_PORT_UNREACHABLE])))


def _verdict(code: int) -> bytes:
    return _part("immediate", _number(1, 0), nested(2, nested(2, _number(1, code))))


_COUNT = _part("counter")


def _comment(data: bytes) -> str:
    return data[2:].rstrip(b"\0").decode("utf-8", "replace")


def _counter(expressions: bytes) -> Counted:
    for _, one in attributes(expressions):
        told = dict(attributes(one))
        if told.get(1) == b"counter\0":
            numbers = dict(attributes(told.get(2, b"")))
            return Counted(*(int.from_bytes(numbers.get(kind, b""), "big") for kind in (2, 1)))
    return Counted(0, 0)
