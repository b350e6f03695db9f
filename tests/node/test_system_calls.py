"""What leads past the network of a container is closed, and the rest goes on as before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


STRICT = """
import ctypes, errno, os, socket, threading
from lab.node.system_calls import close_ways_around, this_machine
machine, libc = this_machine(), ctypes.CDLL(None, use_errno=True)
close_ways_around(strict=True, mounts=MOUNTS)

def refused(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return errno.errorcode.get(ctypes.get_errno(), "done")

print(*(refused(number, 0, 0, 0, 0, 0) for number in machine.shared_tables))
print(refused(machine.clone, 0x10000000 | 17, 0, 0, 0, 0), refused(machine.clone, 0x40000000 | 17, 0, 0, 0, 0))
for family in (socket.AF_ALG, socket.AF_PACKET, socket.AF_VSOCK, socket.AF_TIPC):
    try:
        socket.socket(family, socket.SOCK_SEQPACKET)
    except OSError as error:
        print(errno.errorcode[error.errno])
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    socket.socket(family).close()
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
thread = threading.Thread(target=lambda: print("thread"))
thread.start()
thread.join()
if not os.fork():
    os.execvp("true", ["true"])
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_strict_worker_makes_no_call_that_takes_from_tables_of_the_whole_machine() -> None:
    for mounts in ("True", "False"):
        program = STRICT.replace("MOUNTS", mounts)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        calls, clones, *families, thread, code = done.stdout.splitlines()
        assert set(calls.split()) == {"ENOSYS"}
        assert clones == "EPERM EPERM"
        assert families == ["EAFNOSUPPORT"] * 4
        assert (thread, code) == ("thread", "0")


MODES = """
import ctypes, errno, itertools, os, stat, sys
from lab.node.system_calls import close_ways_around, this_machine
os.chdir(sys.argv[1])
os.umask(0)
machine, libc = this_machine(), ctypes.CDLL(None, use_errno=True)
close_ways_around(mounts=True)
made = []

def attempt(number, *arguments):
    ctypes.set_errno(0)
    got = libc.syscall(number, *(one if isinstance(one, bytes) else ctypes.c_long(one) for one in arguments))
    made.append(got)
    return got, errno.errorcode.get(ctypes.get_errno(), "done")

plain = os.open("plain", os.O_CREAT | os.O_RDWR, 0o755)
for mode in (0o4755, 0o2755, 0o6755, 0o106755):
    for number, at in machine.modes.items():
        first = [b"plain"] if at == 1 else [-100, b"plain"]
        first = [plain] if number == FCHMOD else first
        print(attempt(number, *first, mode)[1])
    for number, at in machine.opens.items():
        first = [b"new"] if at == 1 else [-100, b"new"]
        print(attempt(number, *first, os.O_CREAT | os.O_RDWR, mode)[1])
        first = [b"."] if at == 1 else [-100, b"."]
        print(attempt(number, *first, os.O_TMPFILE | os.O_RDWR, mode)[1])
print(attempt(437, -100, b"new", b"\\0" * 24, 24)[1])
os.chmod("plain", 0o1777)
os.fchmod(plain, 0o644)
open("other", "w").close()
assert os.listdir(".") and all(stat.S_IMODE(os.stat(one).st_mode) & 0o6000 == 0 for one in os.listdir("."))
got, said = attempt(OPENAT, -100, b"plain", os.O_RDONLY, 0o4755)
print("opened" if got >= 0 else said)
"""


def test_a_worker_that_sees_folders_of_the_machine_makes_no_setuid_file(tmp_path: Path) -> None:
    openat, fchmod = {"x86_64": (257, 91), "aarch64": (56, 52)}[os.uname().machine]
    program = MODES.replace("FCHMOD", str(fchmod)).replace("OPENAT", str(openat))

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    *refused, openat2, opened = done.stdout.split()
    assert set(refused) == {"EPERM"}
    assert (openat2, opened) == ("ENOSYS", "opened"), "without O_CREAT the mode means nothing"
    assert sorted(os.listdir(tmp_path)) == ["other", "plain"]
