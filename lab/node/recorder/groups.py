"""The `group` lines: which ranks are in a process group."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from . import marks
from .journal import journal


def watch(module: ModuleType) -> None:
    """Have the groups that `torch.distributed.distributed_c10d` makes recorded."""
    watched = functools.partial(_watched, module)
    marks.replace((module,), "_new_process_group_helper", watched)
    marks.replace((module, sys.modules.get("torch.distributed")), "split_group", watched)


def _watched(module: ModuleType, make: Any) -> Any:
    @functools.wraps(make)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        made = make(*arguments, **named)
        if journal.on:
            if isinstance(made, tuple):  # the group and its store
                ranks = arguments[2] if len(arguments) > 2 else named.get("global_ranks_in_group")
                _describe(module, made[0], ranks)
            else:
                _describe(module, made, sorted(module._world.pg_group_ranks.get(made, ())))
        return made

    return wrapper


def _describe(module: ModuleType, group: Any, ranks: Any) -> None:
    if not isinstance(group, module.ProcessGroup):
        return  # this process is not in it
    try:
        journal.add(
            "group",
            g=group.group_name,
            ranks=[int(rank) for rank in ranks or range(group.size())],
            backend=str(module._world.pg_map[group][0]),
            desc=str(getattr(group, "group_desc", "")),
        )
    except (AttributeError, KeyError, TypeError):
        pass  # another version of torch: readers do without
