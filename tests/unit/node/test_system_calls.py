"""What leads past the network of a container is closed, and the rest goes on as before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes, errno, os, socket
from lab.node.system_calls import close_ways_around
close_ways_around()
libc = ctypes.CDLL(None, use_errno=True)
for number in (425, 426, 427, *([0x40000027] if os.uname().machine == "x86_64" else [])):
    assert libc.syscall(number, 1, None) == -1
    print(errno.errorcode[ctypes.get_errno()])
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
except OSError as error:
    print(errno.errorcode[error.errno])
for family in (socket.AF_UNIX, socket.AF_INET):
    socket.socket(family).close()
if not os.fork():
    os.execvp("true", ["true"])
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_io_uring_and_sockets_to_virtual_machines_are_refused_and_others_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    *refused, family, code = done.stdout.split()
    assert set(refused) == {"ENOSYS"}
    assert (family, code) == ("EAFNOSUPPORT", "0")
