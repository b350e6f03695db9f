"""Notes who it is and what it may do."""

import fcntl
import os
import socket
import struct
import tempfile

from lab import note

with open("/proc/self/status") as file:
    note("status", dict(line.strip().split(":\t", 1) for line in file if line.startswith(("Cap", "NoNewPrivs"))))
note("ids", [os.getuid(), os.getgid(), os.geteuid(), os.getegid()])
note("groups", os.getgroups())

SIOCSIFFLAGS = 0x8914
with socket.socket() as any_socket:
    try:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", 0x49))
        note("may set up an interface", True)
    except PermissionError:
        note("may set up an interface", False)


def may_write(folder):
    path = os.path.join(folder, "written-by-a-worker-" + os.environ["RANK"])
    try:
        with open(path, "w") as file:
            file.write("x")
        os.unlink(path)
    except OSError:
        return False
    return True


folders = {
    "working folder": ".",
    "temporary folder": tempfile.gettempdir(),
    "home": os.path.expanduser("~"),
    "shared": os.environ["LAB_SHARED"],
}
note("may write", {name: may_write(folder) for name, folder in folders.items()})
