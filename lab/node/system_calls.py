"""Filters of system calls: one that sees some of them, and one that closes ways around the node's own network.

A filter holds for the process that sets it and for all that it starts, for good.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
"""What becomes of a call; to the last an error number is added."""
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions; of a comparison, the next two say how many are left out where it is true, and where it is not."""
NUMBER_AT, MACHINE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
NEW_LISTENER = 8
"""A flag: the result is a descriptor at which calls are told."""
_PR_SET_NO_NEW_PRIVS = 38
_SET_FILTER = 1
_IO_URING = (425, 426, 427)
_AF_VSOCK = 40
_OF_X32 = 1 << 30

Instruction = tuple[int, int, int, int]


class Machine(NamedTuple):
    """Numbers of system calls."""

    machine: int
    seccomp: int
    socket: int


_MACHINES = {"x86_64": Machine(0xC000003E, 317, 41), "aarch64": Machine(0xC00000B7, 277, 198)}


def this_machine() -> Machine | None:
    """The numbers here; None where they are not known."""
    return _MACHINES.get(os.uname().machine)


def set_filter(machine: Machine, program: Sequence[Instruction], flags: int = 0) -> int:
    """Set a filter; returns 0 or a descriptor, -1 where the kernel refuses."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return int(libc.syscall(machine.seccomp, _SET_FILTER, flags, described))


def close_ways_around() -> None:
    """Refuse what leads past the network of a container, and past filters, as later engines' own filters do.

    Sockets to virtual machines (AF_VSOCK) belong to no network namespace; what io_uring does for a process no filter
    sees; and calls of another machine's numbers, such as those of 32 bits, would say the same otherwise.
    """
    machine = this_machine()
    if machine is None:
        return
    no_call, no_family = REFUSE | errno.ENOSYS, REFUSE | errno.EAFNOSUPPORT
    set_filter(
        machine,
        [
            (LOAD, 0, 0, MACHINE_AT),
            (EQUAL, 0, 9, machine.machine),
            (LOAD, 0, 0, NUMBER_AT),
            (AT_LEAST, 7, 0, _OF_X32),
            *((EQUAL, 6 - index, 0, number) for index, number in enumerate(_IO_URING)),
            (EQUAL, 0, 2, machine.socket),
            (LOAD, 0, 0, FIRST_ARGUMENT_AT),
            (EQUAL, 2, 0, _AF_VSOCK),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, no_call),
            (RETURN, 0, 0, no_family),
        ],
    )
