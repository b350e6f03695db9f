"""Seccomp filters: one that watches system calls, and those that refuse calls to workers of a container.

A filter stays for good, for the process that sets it and for all its descendants.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
"""Results of a filter; an error number is added to the last."""
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions; a comparison is followed by the numbers of instructions to skip if it holds, and if not."""
NUMBER_AT, MACHINE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
NEW_LISTENER = 8
"""Flag: the result is a descriptor that reports calls."""
_PR_SET_NO_NEW_PRIVS = 38
_SET_FILTER = 1
_IO_URING = (425, 426, 427)
_AF_VSOCK = 40
_STRICT_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK, with which libraries list devices."""
_OF_X32 = 1 << 30
_NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW... flag of `clone`."""
_SETUID_OR_SETGID = 0o6000
_MAKES_A_FILE = os.O_CREAT | 0o20000000
"""The second is the bit of O_TMPFILE that no other flag has."""

Instruction = tuple[int, int, int, int]


class Machine(NamedTuple):
    """Numbers of system calls."""

    machine: int
    seccomp: int
    socket: int
    clone: int
    shared_tables: tuple[int, ...]
    """Calls that use entries in tables of the whole machine, or make namespaces: io_setup, add_key, request_key,
    keyctl, perf_event_open, bpf, userfaultfd, fanotify_init, memfd_secret, unshare, setns, clone3. If clone3 is
    missing, the C library uses clone."""
    modes: Mapping[int, int]
    """Calls that change the mode of a file, with the index of the argument: chmod, fchmod, fchmodat, fchmodat2, mknod,
    mknodat, creat."""
    opens: Mapping[int, int]
    """Calls that may make a file, with the index of their flags, which the mode follows: open, openat."""
    openat2: int = 437
    """Its mode is in memory, where a filter cannot read it."""


_MACHINES = {
    "x86_64": Machine(
        machine=0xC000003E,
        seccomp=317,
        socket=41,
        clone=56,
        shared_tables=(206, 248, 249, 250, 298, 321, 323, 300, 447, 272, 308, 435),
        modes={90: 1, 91: 1, 268: 2, 452: 2, 133: 1, 259: 2, 85: 1},
        opens={2: 1, 257: 2},
    ),
    "aarch64": Machine(
        machine=0xC00000B7,
        seccomp=277,
        socket=198,
        clone=220,
        shared_tables=(0, 217, 218, 219, 241, 280, 282, 262, 447, 97, 268, 435),
        modes={52: 1, 53: 2, 452: 2, 33: 2},
        opens={56: 2},
    ),
}


def this_machine() -> Machine | None:
    """Return the numbers of this machine; None if unknown."""
    return _MACHINES.get(os.uname().machine)


def set_filter(machine: Machine, program: Sequence[Instruction], flags: int = 0) -> int:
    """Set a filter; return 0 or a descriptor, and -1 if the kernel refuses."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return int(libc.syscall(machine.seccomp, _SET_FILTER, flags, described))


def close_ways_around(*, strict: bool = False, mounts: bool = False) -> None:
    """Refuse calls that bypass the network of a container, or filters, as newer engines' own filters do.

    Sockets to virtual machines (AF_VSOCK) belong to no network namespace. No filter sees what io_uring does for a
    process. Calls with another machine's numbers, such as 32-bit ones, would bypass the rules.

    Args:
        strict: whether to also refuse families of sockets that PyTorch does not use, and calls that use tables of the
            whole machine.
        mounts: whether to also refuse setuid and setgid modes: files in folders of this machine outlive the node.
    """
    if (machine := this_machine()) is None:
        return
    program = [
        (LOAD, 0, 0, MACHINE_AT),
        (EQUAL, 1, 0, machine.machine),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, _OF_X32),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        *_refuse_calls(_IO_URING),
    ]
    if strict:
        program += _refuse_calls(machine.shared_tables)
        program += _refuse_bits(machine.clone, {0: _NEW_NAMESPACES})
        program += _allow_families(machine.socket, _STRICT_FAMILIES)
    if mounts:
        program += _refuse_calls((machine.openat2,))
        for number, mode in machine.modes.items():
            program += _refuse_bits(number, {mode: _SETUID_OR_SETGID})
        for number, flags in machine.opens.items():
            program += _refuse_bits(number, {flags: _MAKES_A_FILE, flags + 1: _SETUID_OR_SETGID})
    program += [
        (EQUAL, 0, 3, machine.socket),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (EQUAL, 0, 1, _AF_VSOCK),
        (RETURN, 0, 0, REFUSE | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    set_filter(machine, program)


def _refuse_calls(numbers: Iterable[int]) -> list[Instruction]:
    return [one for number in numbers for one in ((EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | errno.ENOSYS))]


def _refuse_bits(number: int, refused: Mapping[int, int]) -> list[Instruction]:
    """Refuse a call if any of these arguments has one of these bits, and allow it otherwise."""
    tests = [
        one
        for index, bits in refused.items()
        for one in ((LOAD, 0, 0, FIRST_ARGUMENT_AT + 8 * index), (ANY_BIT, 1, 0, bits), (RETURN, 0, 0, ALLOW))
    ]
    return [(EQUAL, 0, len(tests) + 1, number), *tests, (RETURN, 0, 0, REFUSE | errno.EPERM)]


def _allow_families(number: int, families: Sequence[int]) -> list[Instruction]:
    """Refuse sockets of other families."""
    tests = [(EQUAL, len(families) - index, 0, family) for index, family in enumerate(families)]
    block = [(LOAD, 0, 0, FIRST_ARGUMENT_AT), *tests, (RETURN, 0, 0, REFUSE | errno.EAFNOSUPPORT)]
    return [(EQUAL, 0, len(block) + 1, number), *block, (RETURN, 0, 0, ALLOW)]
