"""Another container's first process, seen from the machine: what it is in and has open, and how to go there.

All is reached through one descriptor of its folder in /proc, so that its number cannot become another process's
meanwhile.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import NamedTuple

from .confinement import Unlike

GROUPS = "/machine/cgroup"
"""Where the control groups of the machine are mounted for who enters containers."""
_NAMESPACES = ("cgroup", "ipc", "net", "uts", "mnt")
"""In the order in which they are entered: what is in the last decides which files are seen."""

_libc = ctypes.CDLL(None, use_errno=True)


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
    if _libc.setns(descriptor, 0):
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
