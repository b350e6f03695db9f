"""Remove what tests left on this machine and in a Docker engine, and say what it was.

    python dev/remove_leftovers.py LOGNAME FOLDER

LOGNAME is the variable with which the tests ran. Their processes have it in their environment, also with something
added to it after a "-"; and what they make in an engine has it in the label that names the owner. FOLDER is the one of
their temporary files, in which file systems may be mounted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

OWNER = "lab.cluster.owner"
DEADLINE_S = 20.0
"""A process whose memory is large takes some time to end."""
_MNT_DETACH = 2


def find_processes(name: str) -> dict[int, str]:
    """Return the command lines of the processes with this LOGNAME, by pid, without this one."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            for variable in (folder / "environ").read_bytes().split(b"\0"):
                value = variable.removeprefix(b"LOGNAME=").decode(errors="replace")
                if variable != value.encode() and is_of(value, name) and int(folder.name) != os.getpid():
                    found[int(folder.name)] = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")[:100]
    return found


def is_of(owner: str, name: str) -> bool:
    """Return whether a LOGNAME, or the owner of a cluster, is that of the tests or begins with it."""
    return owner.partition("@")[0] == name or owner.startswith(f"{name}-")


def kill_processes(name: str) -> list[str]:
    """Kill all processes with this LOGNAME, and return their command lines."""
    killed: dict[int, str] = {}
    deadline = time.monotonic() + DEADLINE_S
    while (found := find_processes(name)) and time.monotonic() < deadline:
        killed |= found
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return [f"process {pid}: {command}" for pid, command in killed.items()]


def remove_from_engine(name: str) -> list[str]:
    """Remove the containers, networks, and volumes of this owner, and return their names."""
    import docker

    try:
        client = docker.from_env(timeout=60)
        wanted = {"label": OWNER}
        found = [
            ("container", one, one.labels)
            for one in client.containers.list(all=True, filters=wanted, ignore_removed=True)
        ]
        found += [("network", one, one.attrs["Labels"]) for one in client.networks.list(filters=wanted)]
        found += [("volume", one, one.attrs["Labels"]) for one in client.volumes.list(filters=wanted)]
    except docker.errors.DockerException:  # there is no engine, so there is nothing in it
        return []
    removed = []
    for kind, one, labels in found:
        if is_of(labels[OWNER], name):
            removed.append(f"{kind} {one.name}")
            with suppress(docker.errors.APIError):  # it has just gone
                one.remove(**({} if kind == "network" else {"force": True}))
    return removed


def unmount(folder: str) -> list[str]:
    """Unmount what is mounted in a folder, and return where."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [place for place in mounted if place.startswith(f"{folder}/")]
    for place in reversed(inside):
        ctypes.CDLL(None).umount2(os.fsencode(place), _MNT_DETACH)
    return [f"mount {place}" for place in inside]


def main(name: str, folder: str) -> None:
    """Remove everything, and print a line for each thing."""
    for one in (*kill_processes(name), *remove_from_engine(name), *unmount(folder)):
        print(f"dev/test: removed {one}")


if __name__ == "__main__":
    main(*sys.argv[1:])
