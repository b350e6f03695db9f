"""Deeds: what an agent does to its node, takes back, or looks at, when the lab asks for it.

The module of a deed has `apply(context, said)`, `undo(context, said)` and `look(context, said)`; that of several has
`apply_DEED` and so on. A function that is missing has nothing to do. Each returns what it found, as plain data, and
raises ValueError or OSError, with a sentence, where it cannot; done twice it is no error.
The agent has one thread, and many to serve: a module with `APART = True` is called in a process of its own, because it
takes longer than a few milliseconds or imports what agents do not need. It may keep nothing in memory, then. Some are
done by one process that stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..config import Config
    from ..noderun import NodeRun

DEEDS: dict[str, str] = {"neighbours": "neighbours"}
"""The module of this folder that does it, by deed. A feature has such a table in its package for nodes, with `STAYING`,
those that the process does that stays, and `lacking(deed)`, why one cannot be done yet; its deeds are FEATURE.DEED."""


class Context(NamedTuple):
    """What a deed may know of where it is done."""

    config: Config
    """Of the node."""
    run: NodeRun | None
    """The run that has the node; None: no run."""
    hogs: set[int]
    """Processes that eat memory, whatever runs come and go."""
