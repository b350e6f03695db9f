"""Which packets a node drops, refuses or sends twice: one nf_tables table of the lab's own, each rule with a counter.

Packets are lost where they arrive, not where they are sent: a sender whose own kernel drops a packet knows of it.
The table is replaced as a whole, in one transaction: no packet sees a half of it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyroute2.netlink import NETLINK_NETFILTER, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg
from pyroute2.netlink.nfnetlink.nftsocket import (
    NFPROTO_IPV4,
    NFT_MSG_DELTABLE,
    NFT_MSG_GETRULE,
    NFT_MSG_GETTABLE,
    NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWRULE,
    NFT_MSG_NEWTABLE,
    AsyncNFTSocket,
    Cmp,
    Meta,
    nft_chain_msg,
    nft_rule_msg,
    nft_table_msg,
)

from .kernel import ABSENT, Kernel, Refused, filled, unless

NAME = "lab"
NAMES = "names"
"""What is counted of questions for names; else a word and the address of a peer: `drop 10.0.0.2`."""
_SUBSYSTEM = NFNL_SUBSYS_NFTABLES << 8
_BEGIN, _END = 0x10, 0x11
_ARRIVES, _LEAVES = "arrives", "leaves"
_HOOKS = {_ARRIVES: 1, _LEAVES: 3}
_BEFORE_OTHERS = -150
"""After connections are known, before addresses are changed (Docker gives its resolver another port there)."""
_NETWORK, _TRANSPORT = 1, 2
_SOURCE, _DESTINATION = 12, 16
_DNS = 53
_RST = 0x04
_PARTS = 1 << 24
_RANDOM = 1
_TO_WIRE = 1
_VERDICT, _REGISTER = 0, 1
_DROP = 0
_UNREACHABLE, _RESET = 0, 1
_PORT_UNREACHABLE = 3


class Counted(NamedTuple):
    """What a rule has met."""

    packets: int
    bytes: int


def filters() -> Kernel:
    """A socket to the kernel's packet filters."""
    return Kernel(NETLINK_NETFILTER, {_SUBSYSTEM | kind: read for kind, read in AsyncNFTSocket.policy.items()})


def set_rules(arriving: Mapping[str, Mapping[str, float]], leaving: Mapping[str, float], *, names: bool) -> list[Any]:
    """The rules, each a message.

    Args:
        arriving: by address of the sender, the shares of its packets that are to `reset`, `drop` or be lost (`loss`).
        leaving: by address of a peer, the share of packets to it that are sent twice.
        names: whether names can be asked for.
    """
    rules = []
    for address, asked in arriving.items():
        if asked.get("reset"):
            parts = [*_is(_SOURCE, address), *_protocol(socket.IPPROTO_TCP), *_no_reset()]
            rules.append(_rule(_ARRIVES, f"reset {address}", [*parts, _count(), _reject(_RESET)]))
        if asked.get("drop"):
            rules.append(_rule(_ARRIVES, f"drop {address}", [*_is(_SOURCE, address), _count(), _verdict(_DROP)]))
        elif asked.get("loss"):
            rules.append(_rule(_ARRIVES, f"from {address}", [*_is(_SOURCE, address), _count()]))
            parts = [*_is(_SOURCE, address), *_by_chance(asked["loss"])]
            rules.append(_rule(_ARRIVES, f"loss {address}", [*parts, _count(), _verdict(_DROP)]))
    for address, share in leaving.items():
        rules.append(_rule(_LEAVES, f"to {address}", [*_is(_DESTINATION, address), _count()]))
        parts = [*_is(_DESTINATION, address), *_by_chance(share)]
        rules.append(_rule(_LEAVES, f"duplicate {address}", [*parts, _count(), *_again(address)]))
    if not names:
        for protocol, answer in ((socket.IPPROTO_UDP, _reject(_UNREACHABLE)), (socket.IPPROTO_TCP, _reject(_RESET))):
            rules.append(_rule(_LEAVES, NAMES, [*_protocol(protocol), *_port(_DNS), _count(), answer]))
    return rules


def replace(filters: Kernel, rules: list[Any]) -> None:
    """Have these rules and no others; without any, no table.

    Raises:
        Refused: the kernel cannot.
    """
    if not stands(filters) and not rules:
        return
    made = _message(NFT_MSG_NEWTABLE, nft_table_msg(), [("NFTA_TABLE_NAME", NAME)])
    gone = _message(NFT_MSG_DELTABLE, nft_table_msg(), [("NFTA_TABLE_NAME", NAME)], 0)
    again = _message(NFT_MSG_NEWTABLE, nft_table_msg(), [("NFTA_TABLE_NAME", NAME)])
    messages = [made, gone]  # made first, so that there is one to delete
    if rules:
        messages += [again, *(_chain(chain, hook) for chain, hook in _HOOKS.items()), *rules]
    filters.do_all([_edge(_BEGIN), *messages, _edge(_END)])


def counted(filters: Kernel) -> dict[str, Counted]:
    """What each rule of the table has met, by what it is for."""
    found: dict[str, Counted] = {}
    try:
        rules = _dumped(filters, NFT_MSG_GETRULE, nft_rule_msg(), [("NFTA_RULE_TABLE", NAME)])
    except Refused as refused:
        unless(ABSENT, refused)
        return {}
    for rule in rules:
        if rule.get_attr("NFTA_RULE_TABLE") == NAME:
            name, more = rule.get_attr("NFTA_RULE_USERDATA"), _counter(rule)
            met = found.get(name, Counted(0, 0))
            found[name] = Counted(met.packets + more.packets, met.bytes + more.bytes)
    return found


def stands(filters: Kernel) -> bool:
    """Whether the table is there."""
    tables = _dumped(filters, NFT_MSG_GETTABLE, nft_table_msg(), [])
    return any(table.get_attr("NFTA_TABLE_NAME") == NAME for table in tables)


def _dumped(filters: Kernel, kind: int, message: Any, attributes: list[tuple[str, Any]]) -> list[Any]:
    return filters.dump(_SUBSYSTEM | kind, filled(message, attributes, nfgen_family=NFPROTO_IPV4))


# -- messages of a transaction


def _message(kind: int, message: Any, attributes: list[tuple[str, Any]], flags: int = NLM_F_CREATE) -> Any:
    message["header"]["type"] = _SUBSYSTEM | kind
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | flags
    return filled(message, attributes, nfgen_family=NFPROTO_IPV4)


def _edge(kind: int) -> Any:
    message = filled(nfgen_msg(), res_id=NFNL_SUBSYS_NFTABLES)
    message["header"]["type"], message["header"]["flags"] = kind, NLM_F_REQUEST
    return message


def _chain(name: str, hook: int) -> Any:
    at = _nested(NFTA_HOOK_HOOKNUM=hook, NFTA_HOOK_PRIORITY=_BEFORE_OTHERS)
    told = [("NFTA_CHAIN_TABLE", NAME), ("NFTA_CHAIN_NAME", name), ("NFTA_CHAIN_HOOK", at)]
    return _message(NFT_MSG_NEWCHAIN, nft_chain_msg(), [*told, ("NFTA_CHAIN_TYPE", "filter")])


def _rule(chain: str, name: str, parts: Iterable[Any]) -> Any:
    where, what = [("NFTA_RULE_TABLE", NAME), ("NFTA_RULE_CHAIN", chain)], ("NFTA_RULE_EXPRESSIONS", list(parts))
    told = [*where, what, ("NFTA_RULE_USERDATA", name)]
    return _message(NFT_MSG_NEWRULE, nft_rule_msg(), told, NLM_F_CREATE | NLM_F_APPEND)


# -- parts of rules


def _nested(**attributes: Any) -> dict[str, Any]:
    return {"attrs": list(attributes.items())}


def _part(name: str, **attributes: Any) -> dict[str, Any]:
    return _nested(NFTA_EXPR_NAME=name, NFTA_EXPR_DATA=_nested(**attributes))


def _data(value: bytes) -> dict[str, Any]:
    return _nested(NFTA_DATA_VALUE=value)


def _compare(value: bytes, how: Cmp = Cmp.NFT_CMP_EQ) -> dict[str, Any]:
    return _part("cmp", NFTA_CMP_SREG=_REGISTER, NFTA_CMP_OP=how, NFTA_CMP_DATA=_data(value))


def _load(base: int, offset: int, size: int) -> dict[str, Any]:
    return _part(
        "payload",
        NFTA_PAYLOAD_DREG=_REGISTER,
        NFTA_PAYLOAD_BASE=base,
        NFTA_PAYLOAD_OFFSET=offset,
        NFTA_PAYLOAD_LEN=size,
    )


def _is(offset: int, address: str) -> list[Any]:
    return [_load(_NETWORK, offset, 4), _compare(socket.inet_aton(address))]


def _protocol(number: int) -> list[Any]:
    return [_part("meta", NFTA_META_DREG=_REGISTER, NFTA_META_KEY=Meta.NFT_META_L4PROTO), _compare(bytes([number]))]


def _port(number: int) -> list[Any]:
    return [_load(_TRANSPORT, 2, 2), _compare(number.to_bytes(2, "big"))]


def _no_reset() -> list[Any]:
    """Not itself the reset of a connection: that one has to arrive."""
    masked = _part(
        "bitwise",
        NFTA_BITWISE_SREG=_REGISTER,
        NFTA_BITWISE_DREG=_REGISTER,
        NFTA_BITWISE_LEN=1,
        NFTA_BITWISE_MASK=_data(bytes([_RST])),
        NFTA_BITWISE_XOR=_data(b"\0"),
    )
    return [_load(_TRANSPORT, 13, 1), masked, _compare(b"\0")]


def _by_chance(share: float) -> list[Any]:
    drawn = _part("numgen", NFTA_NG_DREG=_REGISTER, NFTA_NG_MODULUS=_PARTS, NFTA_NG_TYPE=_RANDOM)
    ordered = _part(
        "byteorder",
        NFTA_BYTEORDER_SREG=_REGISTER,
        NFTA_BYTEORDER_DREG=_REGISTER,
        NFTA_BYTEORDER_OP=_TO_WIRE,
        NFTA_BYTEORDER_LEN=4,
        NFTA_BYTEORDER_SIZE=4,
    )
    return [drawn, ordered, _compare(round(share * _PARTS).to_bytes(4, "big"), Cmp.NFT_CMP_LT)]


def _again(address: str) -> list[Any]:
    whither = _data(socket.inet_aton(address))
    loaded = _part("immediate", NFTA_IMMEDIATE_DREG=_REGISTER, NFTA_IMMEDIATE_DATA=whither)
    return [loaded, _part("dup", NFTA_DUP_SREG_ADDR=_REGISTER)]


def _reject(how: int) -> dict[str, Any]:
    return _part("reject", NFTA_REJECT_TYPE=how, NFTA_REJECT_ICMP_CODE=_PORT_UNREACHABLE)


def _verdict(code: int) -> dict[str, Any]:
    said = _nested(NFTA_DATA_VERDICT=_nested(NFTA_VERDICT_CODE=code))
    return _part("immediate", NFTA_IMMEDIATE_DREG=_VERDICT, NFTA_IMMEDIATE_DATA=said)


def _count() -> dict[str, Any]:
    return _part("counter")


def _counter(rule: Any) -> Counted:
    for one in rule.get_attr("NFTA_RULE_EXPRESSIONS"):
        if one.get_attr("NFTA_EXPR_NAME") == "counter":
            told = one.get_attr("NFTA_EXPR_DATA")
            return Counted(told.get_attr("NFTA_COUNTER_PACKETS"), told.get_attr("NFTA_COUNTER_BYTES"))
    return Counted(0, 0)
