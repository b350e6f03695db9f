"""Deeds: what an agent does to its node, takes back, or looks at, when the lab asks for it.

The module of a deed has `apply(context, said)`, `undo(context, said)` and `look(context, said)`. Each returns what it
found, as plain data, and raises ValueError or OSError, with a sentence, where it cannot; done twice it is no error.
The agent has one thread, and many to serve: a module with `APART = True` is called in a process of its own, because it
takes longer than a few milliseconds or imports what agents do not need. It may keep nothing in memory, then. All that
is done to links is done by one process that stays: what it imports takes a tenth of a second, and is lent to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..config import Config
    from ..noderun import NodeRun

DEEDS: dict[str, str] = {
    "cable": "cable",
    "disk": "disk_faults",
    "hog": "hog",
    "library": "library",
    "links": "links",
    "link_probe": "link_probe",
    "loader": "loaders",
    "neighbours": "neighbours",
    "shutdown": "shutdown",
    "signal": "signalling",
}
"""The module of this folder that does it, by deed."""


class Context(NamedTuple):
    """What a deed may know of where it is done."""

    config: Config
    """Of the node."""
    run: NodeRun | None
    """The run that has the node; None: no run."""
    hogs: set[int]
    """Processes that eat memory, whatever runs come and go."""
