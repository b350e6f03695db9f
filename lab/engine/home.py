"""Where engines that keep something of their own about a cluster do so: a folder each, an entry a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from lab.errors import ClusterError


class Taken(ClusterError):
    """Somebody else, with other locks, makes a cluster of that name: nothing of ours is there."""


def state_folder() -> Path:
    """Where the lab keeps what it has to know of this user's clusters."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "lab"


def home_of(engine: str) -> Path:
    """The folder of an engine in which an entry has the name of a cluster that is there, or half made."""
    if engine == "local":
        from lab.engine.local.layout import home_folder

        return home_folder()
    if engine == "slurm":
        from lab.engine.slurm import layout

        return layout.home_folder()
    return state_folder() / engine


def has_any(engine: str) -> bool:
    """Whether there is any cluster in the folder of an engine."""
    try:
        with os.scandir(home_of(engine)) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


def new_folder(home: Path, cluster: str, variable: str) -> Path:
    """Make the folder of a cluster in that of its engine, which `variable` of the environment names.

    Raises:
        Taken: there is one already.
        ClusterError: it cannot be made.
    """
    folder, hint = home / cluster, f"set {variable} to a short path of your own"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise ClusterError(f"{home} belongs to somebody else", hint)
        folder.mkdir(mode=0o700)
    except OSError as error:
        cannot = f"cannot make the cluster's folder {folder}: {error.strerror}"
        if folder.exists():
            raise Taken(cannot, "another command may be making the cluster: use another name with --name") from error
        raise ClusterError(cannot, hint) from error
    return folder
