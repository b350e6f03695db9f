"""The deed `neighbours`: a node knows the hardware addresses of the others, and its kernel need not remember them.

A machine remembers some 1,000 of them by itself, in all of its network namespaces together
(`net.ipv4.neigh.default.gc_thresh3`), and refuses to send where there are more; 64 nodes that all talk to one another
are 4,032. What is said here does not count. It is checked as any other entry is, so a node that has come back with
another address is found again.

Nodes of a large cluster do it before any run, so it is no reason to have a library lent and imported on each of them.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

from .. import netlink
from . import Context
from .devices import device

_ADD, _REMOVE, _ASK = 28, 29, 30
_PROTOCOL_ADDRESS, _HARDWARE_ADDRESS = 1, 2
_HEAD = struct.Struct("=BxxxiHBB")
"""`struct ndmsg`: family, device, state, flags, type."""
_STALE = 0x04
_TOLD = 0x10
"""NTF_EXT_LEARNED: the kernel did not find it out itself; Linux does not count such entries since 5.0."""


def apply(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Tell the kernel the hardware addresses of other nodes.

    Args:
        said: `address`, of this node; `hardware`, by address of another one the six bytes as `02:42:ac:11:00:02`.

    Raises:
        OSError: it does not take them.
    """
    index = device(said["address"])
    for address, hardware in said["hardware"].items():
        known = netlink.attribute(_HARDWARE_ADDRESS, bytes.fromhex(hardware.replace(":", "")))
        _told(_ADD, netlink.ACK | netlink.CREATE | netlink.REPLACE, _entry(index, address) + known)
    return look(context, said)


def undo(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Have the kernel find them out itself.

    Raises:
        OSError: it does not let go of them.
    """
    index = device(said["address"])
    for address in said["hardware"]:
        try:
            _told(_REMOVE, netlink.ACK, _entry(index, address))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
    return look(context, said)


def look(_: Context, said: dict[str, Any]) -> dict[str, Any]:
    """The addresses of which the kernel was told."""
    found = _told(_ASK, netlink.DUMP, _HEAD.pack(socket.AF_INET, 0, 0, 0, 0))
    told = [entry[_HEAD.size :] for entry in found if _HEAD.unpack_from(entry)[3] & _TOLD]
    addresses = (dict(netlink.read_attributes(rest)).get(_PROTOCOL_ADDRESS, b"") for rest in told)
    return {"told": sorted(socket.inet_ntoa(address) for address in addresses if len(address) == 4)}


def _entry(index: int, address: str) -> bytes:
    head = _HEAD.pack(socket.AF_INET, index, _STALE, _TOLD, 0)
    return head + netlink.attribute(_PROTOCOL_ADDRESS, socket.inet_aton(address))


def _told(kind: int, flags: int, body: bytes) -> list[bytes]:
    """Tell the kernel, or ask it; what it answers.

    Raises:
        OSError: it refuses.
    """
    return netlink.send(netlink.ROUTE, [netlink.message(kind, flags, body)])
