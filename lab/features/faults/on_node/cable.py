"""The deed `cable`: the interfaces of a node go down, and come up again with the addresses and routes that they had."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import Any

from .deeds import Context

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCADDRT = 0x8913, 0x8914, 0x890B
_UP = 1
_GATEWAY = 2
_NAME_BYTES = 16
_FLAGS = struct.Struct(f"{_NAME_BYTES}sh22x")
"""`struct ifreq` of <linux/if.h>, with flags."""
_ADDRESS = struct.Struct("=HH4s8x")
"""`struct sockaddr_in`."""
_routes: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
"""Routes over a gateway, which the kernel forgets, of each interface that went down here: where to, mask, gateway."""


def apply(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Take every interface but the loopback down.

    Raises:
        OSError: this agent may not do that.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name in _interfaces():
            flags = _flags(asking, name)
            if flags & _UP:
                _routes[name] = _gateways(name)
                fcntl.ioctl(asking, _SIOCSIFFLAGS, _FLAGS.pack(name.encode(), flags & ~_UP))
    return look(context, said)


def undo(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Take every interface up that is down, with its routes.

    Raises:
        OSError: this agent may not do that.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name in _interfaces():
            flags = _flags(asking, name)
            if not flags & _UP:
                fcntl.ioctl(asking, _SIOCSIFFLAGS, _FLAGS.pack(name.encode(), flags | _UP))
                for route in _routes.pop(name, []):
                    _add_route(asking, name, *route)
    return look(context, said)


def look(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Which interfaces are up, and which are down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        up = {name: bool(_flags(asking, name) & _UP) for name in _interfaces()}
    return {"up": [name for name in up if up[name]], "down": [name for name in up if not up[name]]}


def _interfaces() -> list[str]:
    return sorted(name for name in os.listdir("/sys/class/net") if name != "lo" and _is_ethernet(name))


def _is_ethernet(name: str) -> bool:
    """Not one of those that the kernel makes in each namespace for tunnels."""
    try:
        with open(f"/sys/class/net/{name}/type") as file:
            return file.read().strip() == "1"
    except OSError:
        return False


def _flags(asking: socket.socket, name: str) -> int:
    found = _FLAGS.unpack(fcntl.ioctl(asking, _SIOCGIFFLAGS, _FLAGS.pack(name.encode(), 0)))
    return int(found[1])


def _gateways(name: str) -> list[tuple[bytes, bytes, bytes]]:
    """The routes of an interface over a gateway."""
    with open("/proc/net/route") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return [
        (_packed(row[1]), _packed(row[7]), _packed(row[2]))
        for row in rows
        if row[0] == name and int(row[3], 16) & _GATEWAY
    ]


def _packed(word: str) -> bytes:
    """An address of /proc/net/route, which writes it as a number of this machine."""
    return struct.pack("=I", int(word, 16))


def _add_route(asking: socket.socket, name: str, to: bytes, mask: bytes, gateway: bytes) -> None:
    """`struct rtentry` of <linux/route.h>: an address, a gateway, a mask, flags."""
    addresses = b"".join(_ADDRESS.pack(socket.AF_INET, 0, address) for address in (to, gateway, mask))
    flags = _UP | _GATEWAY
    entry = struct.pack("@L", 0) + addresses + struct.pack("@HhLPhPLLH", flags, 0, 0, 0, 0, 0, 0, 0, 0)
    fcntl.ioctl(asking, _SIOCADDRT, entry.ljust(128, b"\0"))
