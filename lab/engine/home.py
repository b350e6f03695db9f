"""Where engines that keep something of their own about a cluster do so: a folder each, an entry a cluster."""

from __future__ import annotations

import os
from pathlib import Path


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
