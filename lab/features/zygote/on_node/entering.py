"""How another process becomes one of a container: its first process, what that may do, and who is asked for that."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import NamedTuple

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


GROUPS = "/machine/cgroup"
"""Where the control groups of the machine are mounted for who enters containers."""
_NAMESPACES = ("cgroup", "ipc", "net", "uts", "mnt")
"""In the order in which they are entered: what is in the last decides which files are seen."""

_libc_first_process = ctypes.CDLL(None, use_errno=True)


class FirstProcess:
    """The first process of a container.

    Args:
        pid: as the machine numbers it.
        container: the engine's id of the container; found in the names of its control groups.

    Raises:
        OSError: it has ended.
        Unlike: it is not that container's first process.
    """

    def __init__(self, pid: int, container: str) -> None:
        self._folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.groups = self.read("cgroup")
        if container not in self.groups or self._line("NSpid").split()[-1:] != ["1"]:
            raise Unlike(f"process {pid} is not its first one")
        for name in ("ns/user", "attr/current"):
            if self._name(name) != _own(name):
                raise Unlike(f"it is in another {name} than who should enter it")

    def read(self, name: str) -> str:
        """What /proc has of it under a name."""
        with open(self.open(name), encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of what /proc has of it under a name."""
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._folder)

    def words(self) -> list[str]:
        """What it was started with."""
        return self.read("cmdline").split("\0")[:-1]

    def environment(self) -> dict[str, str]:
        """The variables that it was started with."""
        pairs = (entry.partition("=") for entry in self.read("environ").split("\0") if entry)
        return {name: value for name, _, value in pairs}

    def streams(self) -> list[int]:
        """Its standard input, output and error, opened anew."""
        return [self.open(f"fd/{number}", os.O_WRONLY if number else os.O_RDONLY) for number in range(3)]

    def close(self) -> None:
        """Let go of it."""
        os.close(self._folder)

    def join_groups(self) -> None:
        """Move this process into its control groups: what it makes from now on is charged to them.

        Raises:
            Unlike: one of them is not to be found.
        """
        with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as own:
            wanted = list(groups_to_join(mounts.read(), self.groups, own.read()))
        for folder in wanted:
            with open(f"{folder}/cgroup.procs", "w") as file:
                file.write("0")

    def enter(self) -> None:
        """Go where it is: into its namespaces, and to the top of its file system."""
        root = self.open("root")
        for namespace in [self.open(f"ns/{name}") for name in _NAMESPACES]:
            enter_namespace(namespace)
            os.close(namespace)
        os.fchdir(root)
        os.chroot(".")
        os.close(root)

    def _line(self, name: str) -> str:
        lines = (line.partition(":") for line in self.read("status").splitlines())
        return next((value.strip() for key, _, value in lines if key == name), "")

    def _name(self, name: str) -> str:
        return os.readlink(name, dir_fd=self._folder) if name.startswith("ns/") else _label(self.open(name))


def _own(name: str) -> str:
    path = f"/proc/self/{name}"
    return os.readlink(path) if name.startswith("ns/") else _label(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _label(descriptor: int) -> str:
    """What a security module calls a process; empty where there is none."""
    with open(descriptor) as file:
        try:
            return file.read()
        except OSError:
            return ""


def enter_namespace(descriptor: int) -> None:
    """Go into a namespace; into one of processes, only those go that this process makes from now on."""
    if _libc_first_process.setns(descriptor, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class _Mount(NamedTuple):
    """A hierarchy of control groups that is mounted here."""

    root: str
    """What of it."""
    folder: str
    kind: str
    controllers: frozenset[str]


def groups_to_join(mountinfo: str, theirs: str, own: str) -> Iterator[str]:
    """The folders of control groups that a process has to join to be where another one is.

    Args:
        mountinfo: /proc/self/mountinfo.
        theirs: /proc/PID/cgroup of the other process.
        own: that of this process: hierarchies in which both are in one group are left out.

    Raises:
        Unlike: one is not mounted below `GROUPS`.
    """
    mounts = list(_mounts(mountinfo))
    for line in theirs.splitlines():
        if line in own.splitlines():
            continue
        _, names, path = line.split(":", 2)
        controllers = frozenset(names.split(",")) if names else frozenset()
        for mount in mounts:
            fits = mount.kind == "cgroup2" if not names else mount.kind == "cgroup" and controllers <= mount.controllers
            if fits and f"{path}/".startswith(f"{mount.root.rstrip('/')}/"):
                yield mount.folder + path[len(mount.root.rstrip("/")) :]
                break
        else:
            raise Unlike(f"its control group {names or 'v2'}:{path} is not mounted here")


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        _, _, _, root, folder, *_ = before.split()
        kind, _, options = after.split()[:3]
        if kind.startswith("cgroup") and f"{folder}/".startswith(f"{GROUPS}/"):
            yield _Mount(root, folder, kind, frozenset(options.split(",")))


class Enter(Message):
    """Asks for the agent of a node."""

    asked: str
    """Names the request: whoever is attached reads all answers."""
    pid: int
    """Of the node's first process, as the machine numbers it."""
    container: str
    """The engine's id of the node."""


class Entered(Message):
    """The agent is in its node, or why it is not."""

    asked: str
    problem: str = ""
