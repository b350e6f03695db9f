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
    marks.replace((module,), "_new_process_group_helper", functools.partial(_watched_helper, module))
    both = (module, sys.modules.get("torch.distributed"))
    marks.replace(both, "split_group", functools.partial(_watched_split, module))


def _watched_helper(module: ModuleType, helper: Any) -> Any:
    @functools.wraps(helper)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        result = helper(*arguments, **named)
        if journal.on:
            ranks = arguments[2] if len(arguments) > 2 else named.get("global_ranks_in_group")
            _describe(module, result[0], ranks)
        return result

    return wrapper


def _watched_split(module: ModuleType, split: Any) -> Any:
    @functools.wraps(split)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        group = split(*arguments, **named)
        if journal.on and group is not None:
            _describe(module, group, sorted(module._world.pg_group_ranks.get(group, ())))
        return group

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
