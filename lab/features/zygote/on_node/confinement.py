"""The privileges of one process, taken over by another that has more: capabilities, and filters of system calls.

All of it is read from the process that is to be equalled, so nothing here knows what an engine allows by default. Who
takes over looks afterwards whether the kernel says the same of both.
"""

from __future__ import annotations

import ctypes
import os

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_SECCOMP_GET_FILTER = 17, 0x4206, 0x4207, 0x420C
_WALL = 0x40000000
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITIES = 64
_VERSION_3 = 0x20080522
_INSTRUCTION_BYTES = 8
_SAME = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
"""Lines of /proc/PID/status that say what a process may do."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


class _Program(ctypes.Structure):
    """A `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class Unlike(Exception):
    """A process cannot be made what another one is; the message says why."""


def privileges(status: str) -> dict[str, str]:
    """What a process may do, from the text of /proc/PID/status."""
    pairs = (line.partition(":")[::2] for line in status.splitlines())
    return {name: value.strip() for name, value in pairs if name in _SAME}


def filters_of(pid: int) -> list[bytes]:
    """The filters of system calls of a process, the oldest first; it stands still for a moment.

    It takes CAP_SYS_ADMIN, no filter of one's own, and a kernel that can save and restore processes
    (CONFIG_CHECKPOINT_RESTORE).

    Raises:
        OSError: they cannot be had.
    """
    _ptrace(_PTRACE_SEIZE, pid)
    try:
        _ptrace(_PTRACE_INTERRUPT, pid)
        os.waitpid(pid, _WALL)
        found: list[bytes] = []
        while True:
            try:
                length = _ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, len(found))
            except FileNotFoundError:
                return found[::-1]
            program = ctypes.create_string_buffer(length * _INSTRUCTION_BYTES)
            _ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, len(found), ctypes.addressof(program))
            found.append(program.raw)
    finally:
        _ptrace(_PTRACE_DETACH, pid)


def take_over(wanted: dict[str, str], filters: list[bytes]) -> None:
    """Give up all that a process with these privileges has not; for good.

    Args:
        wanted: what `privileges` says of that process.
        filters: its filters of system calls.

    Raises:
        Unlike: this process did not become what that one is.
        OSError: the kernel refused a step.
    """
    os.setgroups([int(group) for group in wanted["Groups"].split()])
    bounding = int(wanted["CapBnd"], 16)
    for capability in range(_CAPABILITIES):
        if not bounding >> capability & 1:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refuses numbers that this kernel does not know
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities(*(int(wanted[name], 16) for name in ("CapEff", "CapPrm", "CapInh")))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for each in filters:
        program = _Program(len(each) // _INSTRUCTION_BYTES, each)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))
    with open("/proc/self/status") as file:
        became = privileges(file.read())
    for name, value in wanted.items():
        if became.get(name) != value:
            raise Unlike(f"its agent would have {name} {became.get(name)}, not {value} as its first process has")


def _set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    words = (value >> shift & 0xFFFFFFFF for shift in (0, 32) for value in (effective, permitted, inheritable))
    if _libc.capset(header, (ctypes.c_uint32 * 6)(*words)):
        raise _error("capset")


def _prctl(what: int, first: int, second: int = 0) -> None:
    if _libc.prctl(what, first, second, 0, 0):
        raise _error(f"prctl {what}")


def _ptrace(what: int, pid: int, address: int = 0, data: int = 0) -> int:
    ctypes.set_errno(0)
    result: int = _libc.ptrace(what, pid, address, data)
    if result < 0:
        raise _error(f"ptrace {what:#x}")
    return result


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
