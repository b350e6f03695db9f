"""Enter a container from another process: its namespaces, its privileges, and the request to do so."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import suppress

from ....node.messages.agent import Message

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_SECCOMP_GET_FILTER = 17, 0x4206, 0x4207, 0x420C
_WALL = 0x40000000
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITIES = 64
_VERSION_3 = 0x20080522
_INSTRUCTION_BYTES = 8
_SAME = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
"""Lines of /proc/PID/status with the privileges of a process."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


class _Program(ctypes.Structure):
    """A `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class Unlike(Exception):
    """A process cannot get the same privileges as another one; the message says why."""


def read_privileges(status: str) -> dict[str, str]:
    """Return the privileges of a process, from the text of /proc/PID/status."""
    pairs = (line.partition(":")[::2] for line in status.splitlines())
    return {name: value.strip() for name, value in pairs if name in _SAME}


def filters_of(pid: int) -> list[bytes]:
    """Return the seccomp filters of a process, the oldest first; the process is stopped for a moment.

    The caller needs CAP_SYS_ADMIN, no filter itself, and a kernel that can checkpoint and restore processes
    (CONFIG_CHECKPOINT_RESTORE).

    Raises:
        OSError: The kernel does not return them.
    """
    _ptrace(_PTRACE_SEIZE, pid)
    try:
        _ptrace(_PTRACE_INTERRUPT, pid)
        os.waitpid(pid, _WALL)
        programs: list[bytes] = []
        while True:
            try:
                length = _ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, len(programs))
            except FileNotFoundError:
                return programs[::-1]
            program = ctypes.create_string_buffer(length * _INSTRUCTION_BYTES)
            _ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, len(programs), ctypes.addressof(program))
            programs.append(program.raw)
    finally:
        _ptrace(_PTRACE_DETACH, pid)


def adopt_privileges(wanted: dict[str, str], filters: list[bytes]) -> None:
    """Give up all privileges that another process does not have, permanently.

    Args:
        wanted: Result of `read_privileges` for that process.
        filters: Its seccomp filters.

    Raises:
        Unlike: This process did not get the same privileges.
        OSError: The kernel refused a step.
    """
    os.setgroups([int(group) for group in wanted["Groups"].split()])
    bounding = int(wanted["CapBnd"], 16)
    for capability in range(_CAPABILITIES):
        if not bounding >> capability & 1:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # the kernel refuses numbers that it does not know
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities(*(int(wanted[name], 16) for name in ("CapEff", "CapPrm", "CapInh")))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for each in filters:
        program = _Program(len(each) // _INSTRUCTION_BYTES, each)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))
    with open("/proc/self/status") as file:
        became = read_privileges(file.read())
    for name, value in wanted.items():
        if became.get(name) != value:
            raise Unlike(f"its agent would have {name} {became.get(name)}, but its first process has {value}")


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


GROUPS = "/machine/cgroup"
"""Where the control groups of the machine are mounted in the zygote."""
_NAMESPACES = ("cgroup", "ipc", "net", "uts", "mnt")
"""In the order of entering: the last one decides which files are visible."""


class FirstProcess:
    """The first process of a container.

    Args:
        pid: As the machine numbers it.
        container: The engine's id of the container, which is part of the names of its control groups.

    Raises:
        OSError: It has ended.
        Unlike: It is not that container's first process.
    """

    def __init__(self, pid: int, container: str) -> None:
        self.container = container
        self._folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.groups = self.read("cgroup")
        if container not in self.groups or not re.search(r"^NSpid:.*\t1$", self.read("status"), re.MULTILINE):
            raise Unlike(f"process {pid} is not its first process")
        if os.readlink("ns/user", dir_fd=self._folder) != os.readlink("/proc/self/ns/user"):
            raise Unlike("its user namespace is not that of the zygote")
        if _label(f"/proc/self/fd/{self._folder}/attr/current") != _label("/proc/self/attr/current"):
            raise Unlike("its security label is not that of the zygote")

    def read(self, name: str) -> str:
        """Return a file of it in /proc."""
        with open(self.open(name), encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of a file of it in /proc."""
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._folder)

    def environment(self) -> dict[str, str]:
        """Return its initial environment."""
        pairs = (entry.partition("=") for entry in self.read("environ").split("\0") if entry)
        return {name: value for name, _, value in pairs}

    def streams(self) -> list[int]:
        """Return its standard input, output, and error, opened again."""
        return [self.open(f"fd/{number}", os.O_WRONLY if number else os.O_RDONLY) for number in range(3)]

    def close(self) -> None:
        """Close its descriptor."""
        os.close(self._folder)

    def join_groups(self) -> None:
        """Move this process into its control groups, so that they account for everything that follows.

        Raises:
            OSError: One of them does not exist.
        """
        with open("/proc/self/cgroup") as own:
            wanted = [*groups_to_join(self.groups, own.read(), hybrid=os.path.isdir(f"{GROUPS}/unified"))]
        for folder in wanted:
            with open(f"{folder}/cgroup.procs", "w") as file:
                file.write("0")

    def enter(self) -> None:
        """Enter its namespaces and the root of its file system."""
        root, namespaces = self.open("root"), [self.open(f"ns/{name}") for name in _NAMESPACES]
        for namespace in namespaces:
            enter_namespace(namespace)
        os.fchdir(root)
        os.chroot(".")


def _label(path: str) -> str:
    """Return the security label of a process; empty without a security module."""
    with suppress(OSError), open(path) as file:
        return file.read()
    return ""


def enter_namespace(descriptor: int) -> None:
    """Enter a namespace; for a PID namespace, only future child processes enter."""
    if _libc.setns(descriptor, 0):
        raise _error("setns")


def groups_to_join(theirs: str, own: str, *, hybrid: bool) -> Iterator[str]:
    """Return the folders of the control groups of another process; they may be missing.

    Args:
        theirs: /proc/PID/cgroup of the other process.
        own: That of this process; hierarchies in which both have the same group are left out.
        hybrid: Whether the machine has hierarchies of version 1 next to version 2.
    """
    for line in theirs.splitlines():
        if line not in own.splitlines():
            _, names, path = line.split(":", 2)
            yield os.path.join(GROUPS, names.removeprefix("name=") or ("unified" if hybrid else ""), path.lstrip("/"))


class Enter(Message):
    """A request for the agent of a node."""

    pid: int
    """The node's first process, as the machine numbers it."""
    container: str
    """The engine's id of the node."""


class Entered(Message):
    """The answer: the agent is in its node, or why it is not."""

    container: str
    problem: str = ""
