"""Keeps process groups that a script destroyed for a while, because their end can hold a process up for ever.

A thread of gloo needs the interpreter's lock to drop its last work. If a DDP object is the last to hold the group, its
end waits for that thread, and keeps the lock. If Python holds the group too, its end lets go of the lock.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from .gloo_loops import LookingUp

_kept: list[Any] = []
_OWN_REFERENCES = 3
"""Those of the list, the loop and `getrefcount` itself."""


def keep() -> None:
    """From now on keep groups that are destroyed, until others are."""
    from ..recorder.imports import when_imported

    when_imported("torch.distributed.distributed_c10d", _watch)


def _watch(module: ModuleType) -> None:
    from ..recorder.marks import replace

    def keeping(destroy: Any) -> Any:
        @functools.wraps(destroy)
        def wrapper(group: Any = None) -> None:
            everything = group is None or group == module.GroupMember.WORLD
            groups = list(module._world.pg_map) if everything else [group]
            with LookingUp():
                destroy(group)
                # What nobody else holds ends now, as it does elsewhere: its peers are to notice.
                _kept[:] = [one for one in groups if sys.getrefcount(one) > _OWN_REFERENCES]
                groups.clear()

        return wrapper

    if hasattr(module, "_world"):  # else another version of torch
        replace((module, sys.modules.get("torch.distributed")), "destroy_process_group", keeping)
