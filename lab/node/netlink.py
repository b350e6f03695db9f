"""Requests to the kernel over netlink, with the standard library alone.

Nodes of a large cluster learn each other's hardware addresses, so that their kernel need not remember them. A
machine remembers some 1,000 by itself, in all of its network namespaces together (`net.ipv4.neigh.default.gc_thresh3`).
It refuses to send beyond that; 64 nodes that all talk to each other need 4,032. Entries that are added here do not
count. The kernel checks them like other entries, so it finds a node that returns with another address.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence

ROUTE, SOCK_DIAG, NETFILTER = 0, 4, 12
"""Netlink families."""
REQUEST, ACK, DUMP, REPLACE, EXCLUSIVE, CREATE, APPEND = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400, 0x800
_NETLINK = 16
_ERROR, _DONE = 2, 3
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_NESTED = 0x8000
_DEADLINE_S = 5.0
_LARGEST_BYTES = 1 << 18
_GET_ADDRESS = 0x8915
_ADD_NEIGHBOUR, _PROTOCOL_ADDRESS, _HARDWARE_ADDRESS = 28, 1, 2
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
"""`struct ndmsg`: family, device, state, flags, type."""
_STALE, _EXT_LEARNED = 0x04, 0x10
"""The second flag marks an entry that the kernel did not learn itself; since 5.0 Linux does not count such entries."""


def encode_attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def encode_nested(kind: int, *attributes: bytes) -> bytes:
    """Encode an attribute that holds other attributes."""
    return encode_attribute(kind | _NESTED, b"".join(attributes))


def read_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Decode attributes: the kind and the value of each."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[max(length + 3 & ~3, _ATTRIBUTE.size) :]


def encode_request(kind: int, flags: int, body: bytes) -> bytes:
    """Encode a request; the kernel answers it if it has the flag ACK or DUMP."""
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body


def send_requests(part: int, messages: Sequence[bytes], answers: int = 1) -> list[bytes]:
    """Send requests in one datagram and wait for the answers, see `exchange_requests`."""
    return list(exchange_requests(part, messages, answers))


def exchange_requests(part: int, messages: Sequence[bytes], answers: int = 1) -> Iterator[bytes]:
    """Send requests in one datagram and receive the answers.

    Args:
        part: the netlink family, ROUTE, SOCK_DIAG, or NETFILTER.
        messages: see `encode_request`.
        answers: number of requests that the kernel answers.

    Yields:
        The bodies of its messages, without acknowledgements.

    Raises:
        OSError: the kernel refuses a request, or does not answer.
    """
    with socket.socket(_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, part) as kernel:
        kernel.settimeout(_DEADLINE_S)
        kernel.send(b"".join(messages))
        while answers > 0:
            data = kernel.recv(_LARGEST_BYTES)
            while data:
                length, what, *_ = _HEADER.unpack_from(data)
                answer, data = data[_HEADER.size : length], data[length + 3 & ~3 :]
                if what == _ERROR and (code := -struct.unpack_from("=i", answer)[0]):
                    raise OSError(code, f"its kernel refuses that: {os.strerror(code)}")
                if what in (_ERROR, _DONE):
                    answers -= 1
                else:
                    yield answer


def find_device(address: str) -> int:
    """Return the number of the network device with this address; 0: none, for example because a cable is out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for number, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(asking.fileno(), _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(reply[20:24]) == address:
                return number
    return 0


def learn_neighbours(address: str, hardware: Mapping[str, str]) -> None:
    """Add the hardware addresses of other nodes, such as `02:42:ac:11:00:02`, to the kernel of this node.

    Args:
        address: of this node.
        hardware: hardware address by address of another node.

    Raises:
        OSError: the kernel refuses them.
    """
    head = _NEIGHBOUR.pack(socket.AF_INET, find_device(address), _STALE, _EXT_LEARNED, 0)
    for other, known in hardware.items():
        body = head + encode_attribute(_PROTOCOL_ADDRESS, socket.inet_aton(other))
        body += encode_attribute(_HARDWARE_ADDRESS, bytes.fromhex(known.replace(":", "")))
        send_requests(ROUTE, [encode_request(_ADD_NEIGHBOUR, ACK | CREATE | REPLACE, body)])
