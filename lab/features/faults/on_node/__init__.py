"""What nodes run of faults: deeds of agents, and what a worker does to itself. By the name of each deed: its module."""

from __future__ import annotations

DEEDS: dict[str, str] = {
    "cable": "cable",
    "disk": "disk_faults",
    "hog": "hog",
    "library": "library",
    "link_probe": "link_probe",
    "links": "links",
    "loader": "loaders",
    "shutdown": "shutdown",
    "signal": "signalling",
}
HOOKS = {
    "agent": "deeds:extend",
    "worker": "holds:arm",
    "recording": "holds:hold_compiled_calls",
    "group_class": "holds:hold_python_calls",
}
STAYING = ("library", "link_probe", "links")
"""Those that one process does, which stays: what it imports takes a tenth of a second, and is lent to it."""


def lacking(deed: str) -> str:
    """Why a deed cannot be done yet; empty where it can."""
    from . import library

    return library.LACKING if deed in STAYING and deed != "library" and not library.there() else ""
