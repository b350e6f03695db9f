"""Removing local clusters: every process that carries the label, then the folder."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lab.engine.local.state import DESCRIPTION, MARK, count_nodes, is_cluster
from lab.engine.protocol import Removed
from lab.errors import ClusterError
from lab.node import processes
from lab.node.remove import remove_tree
from lab.words import format_duration

_DEADLINE_S = 10.0


def remove(home: Path, cluster: str | None) -> Removed:
    """Remove the cluster of this name, or all of them.

    Raises:
        ClusterError: a process does not end, or a folder cannot be removed.
    """
    prefix = f"{home}/{cluster or ''}"
    folders = [f for f in ([home / cluster] if cluster else sorted(home.glob("*"))) if is_cluster(f)]
    for handle in (handle for folder in folders for handle in folder.glob("*.sock")):
        handle.unlink(missing_ok=True)  # so that whoever uses a node learns that it was removed, not killed
    killed, end = set(), time.monotonic() + _DEADLINE_S
    while victims := _marked(prefix, exact=cluster is not None):
        for pid in victims:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > end:
            raise ClusterError(
                f"processes {', '.join(map(str, sorted(victims)))} did not end within {format_duration(_DEADLINE_S)}"
            )
        time.sleep(0.005)
    nodes = sum(count_nodes(folder) for folder in folders)
    for folder in folders:
        for path in set(folder.glob("*")) - {folder / DESCRIPTION}:  # which tells what the rest is, if this is killed
            remove_tree(path)
    stuck = [str(_set_aside(folder)) for folder in folders if not remove_tree(folder)]
    names = {folder.name for folder in folders}
    return Removed(clusters=tuple(sorted(names)), nodes=nodes or len(killed), files=len(folders), stuck=tuple(stuck))


def _set_aside(folder: Path) -> Path:
    """Free the name of a cluster whose folder holds something that this user cannot remove; returns where it is now.

    Raises:
        ClusterError: not even that can be done.
    """
    aside = folder.with_name(f".{folder.name}-{time.time_ns()}")
    try:
        return folder.rename(aside)
    except OSError as error:
        raise ClusterError(
            f"{folder} cannot be removed: it holds something that you may not remove",
            "have it removed, or use another name with --name",
        ) from error


def _marked(mark: str, *, exact: bool) -> list[int]:
    """Processes whose environment carries the label, zombies excepted, and all that they started."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in variables if exact else any(variable.startswith(wanted) for variable in variables):
            found.append(int(entry))
    if not found:
        return []
    return [*found, *set(processes.descendants(*found)).difference(found, [os.getpid()])]
