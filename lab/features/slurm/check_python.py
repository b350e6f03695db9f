"""Check a node's first Python: whether it has torch, and which interface has the node's address.

Its text runs as it is, so it may use only the standard library of Python 3.9. It prints the interface.
"""

import fcntl
import importlib.util
import socket
import struct
import sys

_ASK_ADDRESS = 0x8915


def main() -> None:
    """Print the interface; the last argument is the address."""
    if not importlib.util.find_spec("torch"):
        sys.exit(1)
    print(next((name for _, name in socket.if_nameindex() if _has(name, sys.argv[-1])), ""))


def _has(interface: str, wanted: str) -> bool:
    if wanted.startswith("127."):
        return interface == "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            reply = fcntl.ioctl(asking.fileno(), _ASK_ADDRESS, struct.pack("256s", interface.encode()[:15]))
        except OSError:  # it has no address
            return False
    return socket.inet_ntoa(reply[20:24]) == wanted


if __name__ == "__main__":
    main()
