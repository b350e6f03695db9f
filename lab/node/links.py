"""The links of a node as conditions have them: made true in its network namespace, read back, measured, undone.

A condition is a part with a name; all that are in force together make up what the kernel is told. It is told the whole
every time, so that doing or undoing one twice changes nothing, and so that the last one that goes leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import filtering, shaping
from .connections_reset import reset
from .netlink import NETFILTER, ROUTE, Netlink

if TYPE_CHECKING:
    from .deeds import Context

ALL = "*"
"""Names every part, where they are undone."""
NO_NETEM = "its kernel has no netem, which is what delays, corrupts and reorders packets"

_parts: dict[str, Mapping[str, Any]] = {}
"""What is in force, by name."""
_were_reset: dict[str, int] = {}
"""By name: how many connections were open when it came to be in force, and were reset."""


def apply(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Have one more condition in force, or another in the place of one of its name; returns what is.

    Args:
        said: `part`, its name; `address`, of this node; `to`, by address of a peer how packets leave for it; `from`, by
            address of a peer which of its packets are not taken; `rate_bits_per_s`, of all that leaves for peers;
            `no_names`, whether no name can be asked for.

    Raises:
        OSError, ValueError: the kernel cannot; then everything is as it was before.
    """
    name, before = str(said["part"]), _parts.get(str(said["part"]))
    _parts[name] = said
    try:
        _make(str(said["address"]))
    except (OSError, ValueError):
        _parts.pop(name)
        if before is not None:
            _parts[name] = before
        with suppress(OSError, ValueError):  # what was before may not be possible any more either
            _make(str(said["address"]))
        raise
    peers = [peer for peer, how in said.get("from", {}).items() if how.get("reset")]
    if peers:
        with suppress(OSError):  # whoever uses a connection is told all the same
            _were_reset[name] = reset(peers)
    return look(context, said)


def undo(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Take one back, or all; returns what it had met, and what is in force now.

    Raises:
        OSError: the kernel cannot.
    """
    before = look(context, said)
    if said["part"] == ALL:
        _parts.clear()
        _were_reset.clear()
    _were_reset.pop(str(said["part"]), None)
    _parts.pop(str(said["part"]), None)
    _make(str(said["address"]))
    return {**look(context, said), "before": before}


def look(_: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernel says is in force, with its counters, and what it can.

    Raises:
        OSError: it does not say.
    """
    with Netlink(ROUTE) as route, Netlink(NETFILTER) as filters:
        queues = shaping.Shaping(shaping.device(str(said["address"])), route)
        asked = in_force()
        return {
            "parts": sorted(_parts),
            "shaped": queues.stands(),
            "filtered": filtering.stands(filters),
            "queues": queues.netems(),
            "left": {peer: one._asdict() for peer, one in queues.counted([*asked["to"]]).items()},
            "met": {name: one._asdict() for name, one in filtering.counted(filters).items()},
            "were_reset": sum(_were_reset.values()),
            "netem": queues.knows("netem"),
            "htb": queues.knows("htb"),
        }


def in_force() -> dict[str, Any]:
    """All conditions that are in force, as one."""
    return merged(list(_parts.values()))


def merged(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """All conditions as one: the least rate counts, times are added, and what befalls a packet befalls it of any."""
    whole: dict[str, Any] = {"to": {}, "from": {}, "rate_bits_per_s": None, "no_names": False}
    for part in parts:
        for way in ("to", "from"):
            for address, asked in part.get(way, {}).items():
                whole[way][address] = together(whole[way].get(address, {}), asked)
        rates = [rate for rate in (whole["rate_bits_per_s"], part.get("rate_bits_per_s")) if rate]
        whole["rate_bits_per_s"] = min(rates, default=None)
        whole["no_names"] = whole["no_names"] or bool(part.get("no_names"))
    return whole


def together(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Two conditions of the same packets as one."""
    both = {**one, **other}
    for name in set(one) & set(other):
        first, second = one[name], other[name]
        if name == "rate_bits_per_s":
            both[name] = min(first, second)
        elif name in ("delay_s", "jitter_s"):
            both[name] = first + second
        else:
            both[name] = 1 - (1 - first) * (1 - second)
    return both


def _make(address: str) -> None:
    asked = in_force()
    to, cable = asked["to"], asked["rate_bits_per_s"]
    shaped = {peer: how for peer, how in to.items() if cable or any(how.get(name) for name in shaping.SHAPED)}
    twice = {peer: how["duplicate"] for peer, how in to.items() if how.get("duplicate")}
    rules = filtering.set_rules(asked["from"], twice, names=not asked["no_names"])
    with Netlink(ROUTE) as route, Netlink(NETFILTER) as filters:
        device = shaping.device(address)
        if shaped and not device:
            raise ValueError(f"no device of it has the address {address}: is its cable out?")
        queues = shaping.Shaping(device, route)
        late = any(how.get(name) for how in shaped.values() for name in shaping.LATE)
        if late and not queues.knows("netem"):
            raise ValueError(NO_NETEM)
        queues.make(shaped, cable)
        filtering.replace(filters, rules)
