"""The links of a node as conditions have them: made true in its network namespace, read back, measured, undone.

A condition is a part with a name; all that are in force together make up what the kernel is told. It is told the whole
every time, so that doing or undoing one twice changes nothing, and so that the last one that goes leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....node.netlink import device
from . import filtering, shaping
from .conditions import ALL, LATE, NO_NETEM, SHAPED, merged
from .connections_reset import reset

if TYPE_CHECKING:
    from .deeds import Context

_parts: dict[str, Mapping[str, Any]] = {}
"""What is in force, by name."""
_were_reset: dict[str, int] = {}
"""By name: how many connections were open when it came to be in force, and were reset."""


class Links:
    """What the kernel knows of the links of a node; use it in a `with`.

    Args:
        address: of the node.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._route, self._filters = shaping.route(), filtering.filters()
        self._device = device(address)
        self._queues = shaping.Shaping(self._device, self._route)

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self._route.close()
        self._filters.close()

    def make(self) -> None:
        """Have all in force that is to be, and nothing else.

        Raises:
            OSError, ValueError: the kernel cannot.
        """
        asked = in_force()
        to, cable = asked["to"], asked["rate_bits_per_s"]
        shaped = {peer: how for peer, how in to.items() if cable or any(how.get(name) for name in SHAPED)}
        twice = {peer: how["duplicate"] for peer, how in to.items() if how.get("duplicate")}
        if shaped and not self._device:
            raise ValueError(f"no device of it has the address {self._address}: is its cable out?")
        late = any(how.get(name) for how in shaped.values() for name in LATE)
        if late and not self._queues.knows("netem"):
            raise ValueError(NO_NETEM)
        self._queues.make(shaped, cable)
        filtering.replace(self._filters, filtering.set_rules(asked["from"], twice, names=not asked["no_names"]))

    def look(self) -> dict[str, Any]:
        """What the kernel says is in force, with its counters, and what it can."""
        return {
            "parts": sorted(_parts),
            "shaped": self._queues.stands(),
            "filtered": filtering.stands(self._filters),
            "queues": self._queues.netems(),
            "left": {peer: one._asdict() for peer, one in self._queues.counted([*in_force()["to"]]).items()},
            "met": {name: one._asdict() for name, one in filtering.counted(self._filters).items()},
            "were_reset": sum(_were_reset.values()),
            "netem": self._queues.knows("netem"),
            "htb": self._queues.knows("htb"),
        }


def apply(_: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Have one more condition in force, or another in the place of one of its name; returns what is.

    Args:
        said: `part`, its name; `address`, of this node; `to`, by address of a peer how packets leave for it; `from`, by
            address of a peer which of its packets are not taken; `rate_bits_per_s`, of all that leaves for peers;
            `no_names`, whether no name can be asked for.

    Raises:
        OSError, ValueError: the kernel cannot; then everything is as it was before.
    """
    name, before = str(said["part"]), _parts.get(str(said["part"]))
    with Links(str(said["address"])) as links:
        _parts[name] = said
        try:
            links.make()
        except (OSError, ValueError):
            _parts.pop(name)
            if before is not None:
                _parts[name] = before
            with suppress(OSError, ValueError):  # what was before may not be possible any more either
                links.make()
            raise
        peers = [peer for peer, how in said.get("from", {}).items() if how.get("reset")]
        if peers:
            with suppress(OSError):  # whoever uses a connection is told all the same
                _were_reset[name] = reset(peers)
        return links.look()


def undo(_: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Take one back, or all; returns what it had met, and what is in force now.

    Raises:
        OSError: the kernel cannot.
    """
    with Links(str(said["address"])) as links:
        before = links.look()
        if said["part"] == ALL:
            _parts.clear()
            _were_reset.clear()
        _were_reset.pop(str(said["part"]), None)
        _parts.pop(str(said["part"]), None)
        links.make()
        return {**links.look(), "before": before}


def look(_: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernel says is in force, with its counters, and what it can.

    Raises:
        OSError: it does not say.
    """
    with Links(str(said["address"])) as links:
        return links.look()


def in_force() -> dict[str, Any]:
    """All conditions that are in force, as one."""
    return merged(list(_parts.values()))
