"""The network devices of a node."""

from __future__ import annotations

import fcntl
import socket
import struct

_GET_ADDRESS = 0x8915


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
