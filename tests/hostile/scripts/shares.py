"""Take places in tables that all containers of a machine share, as many as are allowed; note how many were had.

Arguments: how many neighbours, flows, events and files to ask for.
"""

import contextlib
import ctypes
import ipaddress
import os
import resource
import socket
import sys

import torch.distributed as dist

from lab import note

NEIGHBOURS, FLOWS, EVENTS, FILES = map(int, sys.argv[1:])
SO_BINDTODEVICE = 25
LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "x86_64": {"io_setup": 206, "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298},
    "aarch64": {"io_setup": 0, "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241},
}[os.uname().machine]


def number_in(path, column=0, label=""):
    with open(path) as file:
        line = next(line for line in file if line.startswith(label))
    return int(line.removeprefix(label).split()[column])


def call(name, *arguments):
    """The result of a system call, or the number of its error below 0."""
    result = LIBC.syscall(ctypes.c_long(NUMBERS[name]), *arguments)
    return result if result >= 0 else -ctypes.get_errno()


def ask_for_neighbours(own):
    """Send to addresses of the own network, which the kernel has to ask for."""
    first = ipaddress.ip_network(f"{own}/20", strict=False)[16]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"eth0\0")
        for number in range(NEIGHBOURS):
            with contextlib.suppress(OSError):
                sock.sendto(b".", (str(first + number), 9))


def open_flows(peer):
    """Send a datagram to each of many ports, and begin a connection to others."""
    for number in range(FLOWS):
        if number % 5000 == 0:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.sendto(b".", (peer, 1024 + number % 50000))
    for number in range(FLOWS // 10):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.setblocking(False)
            sock.connect((peer, 1024 + number))


def take_events():
    """Places for asynchronous input and output (`fs.aio-max-nr`)."""
    before, contexts, codes = number_in("/proc/sys/fs/aio-nr"), [], set()
    for _ in range(EVENTS // 1024):
        context = ctypes.c_ulong(0)
        codes.add(call("io_setup", 1024, ctypes.byref(context)))
        contexts.append(context)
    note("io_setup", sorted(codes))
    note("events", number_in("/proc/sys/fs/aio-nr") - before)


def open_files():
    """Open files (`fs.file-max`) of this process, whatever its limit says first."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES + 100, FILES + 100))
    opened = []
    with contextlib.suppress(OSError):
        opened.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(FILES))
    for fd in opened:
        os.close(fd)
    note("files", len(opened))


dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    own = socket.gethostbyname(socket.gethostname())
    ask_for_neighbours(own)
    open_flows(socket.gethostbyname("node1"))
    take_events()
    open_files()
    refused = {
        name: call(name, 0, 0, 0, 0, 0) for name in ("add_key", "request_key", "keyctl", "bpf", "perf_event_open")
    }
    note("refused", refused)
dist.barrier()
