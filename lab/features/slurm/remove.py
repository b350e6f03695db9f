"""Removing Slurm clusters: the job is given back, then what holds its agents ends, then the folders go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from lab.engine.held import holder_died
from lab.engine.ownership import forget_cluster
from lab.engine.protocol import Removed
from lab.features.slurm.command import ask, give_back
from lab.features.slurm.state import (
    DESCRIPTION,
    ENGINE,
    LIFE,
    is_cluster,
    jobs,
    read_description,
    shared_folder,
)
from lab.node.files import remove_tree
from lab.waiting import wait_until

_LEAVING_S = 20.0
"""Agents that were told leave long before; after that it is for Slurm alone to wait for the job."""
_SETTLE_S = 0.5
_POLL_S = 0.03


def remove(home: Path, cluster: str | None, *, settle: bool) -> Removed:
    """Remove the owner's cluster of this name, or all of them.

    Raises:
        EngineUnavailable: Slurm does not answer.
    """
    folders = [f for f in ([home / cluster] if cluster else sorted(home.glob("*"))) if is_cluster(f)]
    for handle in (handle for folder in folders for handle in folder.glob("node*.sock")):
        handle.unlink(missing_ok=True)  # so that whoever uses a node learns that it was removed, not lost
    known = {folder.name: read_description(folder) or {} for folder in folders}
    found = jobs(home, cluster)
    if settle and not found:  # whoever was asking for one has just been killed
        time.sleep(_SETTLE_S)
        found = jobs(home, cluster)
    numbers = {str(about["job"]) for about in known.values() if about.get("job")} | {job.number for job in found}
    give_back(*sorted(numbers))
    if numbers:
        _await_end(numbers)
    for folder in folders:
        _end_holder(folder)
    stuck = []
    names = sorted({*known, *(job.cluster for job in found)})
    for name in names:
        shared = shared_folder(home, name)
        if not remove_tree(shared):
            stuck.append(str(shared))
        for path in set((home / name).glob("*")) - {home / name / DESCRIPTION}:  # tells what the rest is, till the end
            remove_tree(path)
        remove_tree(home / name)
        forget_cluster(ENGINE, name)
    nodes = sum(len(about.get("hosts", ())) for about in known.values())
    return Removed(clusters=tuple(names), nodes=nodes or len(found), files=len(names), stuck=tuple(stuck))


def _await_end(numbers: Collection[str]) -> None:
    """Wait until Slurm has nothing of some jobs any more, but not for ever."""
    question = ("squeue", "--noheader", f"--user={os.getuid()}", f"--jobs={','.join(numbers)}", "--format=%i")
    wait_until(lambda: not ask(*question).strip(), _LEAVING_S, _POLL_S)


def _end_holder(folder: Path) -> None:
    """End the process that holds the agents of a cluster; it may end by itself meanwhile."""
    if holder_died(folder / LIFE):
        return
    with suppress(OSError, ValueError):
        os.kill(int((folder / LIFE).read_text()), signal.SIGKILL)
