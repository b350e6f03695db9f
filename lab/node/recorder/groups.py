"""Record process groups: `group` lines with their members, and marks when a rank makes or destroys a group.

A rank that calls `new_group` without being a member writes the mark and no `group` line. The `store` lines hold the
address where a rank looked for the store of `init_process_group`, and whether it connected.
"""

from __future__ import annotations

import inspect
from functools import partial
from types import ModuleType
from typing import Any

from ..hooks import hooks
from . import phases
from .journal import journal, source
from .patching import replace_function, unseen, wraps_function

_LONGEST_REASON = 300


def watch_groups(module: ModuleType, compiled: Any) -> None:
    """Record the groups that `torch.distributed.distributed_c10d` makes and destroys.

    Args:
        module: the module `torch.distributed.distributed_c10d`.
        compiled: the compiled recorder; None if the Python recorder records calls.
    """
    making = partial(_making, module, compiled)
    replace_function(module, "_new_process_group_helper", making)
    replace_function(module, "split_group", making)
    replace_function(module, "destroy_process_group", partial(_destroying, module))


def _making(module: ModuleType, compiled: Any, make: Any) -> Any:
    def described(ranks: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        made = make(*arguments, **named)
        if isinstance(made, tuple):  # the group and its store
            group, default = made[0], not ranks
        else:
            group, ranks, default = made, sorted(module._world.pg_group_ranks.get(made, ())), False
        if isinstance(group, module.ProcessGroup):  # else this process is not a member
            if type(group).__module__ != module.ProcessGroup.__module__:
                for watch_foreign in hooks("foreign_group"):
                    watch_foreign(group, None if journal.threads else compiled)
            _describe(module, group, ranks, default)
        return made

    @wraps_function(make)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return make(*arguments, **named)
        ranks = _argument(2, "global_ranks_in_group", arguments, named)
        if make.__name__ == "split_group" or not ranks:  # the default group, which has the mark of init_process_group
            return described(ranks, arguments, named)
        name = _argument(5, "group_name", arguments, named)
        phases.begin_phase("new_group", g=str(name), ranks=[int(rank) for rank in ranks])
        try:
            return described(ranks, arguments, named)
        finally:
            phases.end_phase("new_group")

    return wrapper


def _destroying(module: ModuleType, destroy: Any) -> Any:
    @wraps_function(destroy)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return destroy(*arguments, **named)
        group = _argument(0, "group", arguments, named) or module.GroupMember.WORLD
        if group is module.GroupMember.WORLD:
            for finish in hooks("recorder_stop"):
                finish()  # the model mostly still exists here, but no longer at the end of the script
        phases.begin_phase("destroy_process_group", g=str(getattr(group, "group_name", "")))
        del group  # the group ends with its last reference, and its peers have to notice that
        try:
            return destroy(*arguments, **named)
        finally:
            phases.end_phase("destroy_process_group")

    return wrapper


def _argument(index: int, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return arguments[index] if len(arguments) > index else named.get(name)


def _describe(module: ModuleType, group: Any, ranks: Any, default: bool) -> None:
    try:
        journal.add(
            "group",
            g=group.group_name,
            ranks=[int(rank) for rank in ranks or range(group.size())],
            backend=str(module._world.pg_map[group][0]),
            desc=str(getattr(group, "group_desc", "")),
            **({"rank": int(group.rank())} if default else {}),  # a script may pass another rank than the worker's
        )
    except (AttributeError, KeyError, TypeError):
        pass  # another version of torch; readers work without this line


def watch_stores(module: ModuleType) -> None:
    """Record the stores that `torch.distributed.rendezvous` makes for `init_process_group`."""
    replace_function(module, "_create_c10d_store", _looking_for_store)


def _looking_for_store(create: Any) -> Any:
    names = list(inspect.signature(create).parameters)

    @wraps_function(create)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        bound = {**dict(zip(names, arguments)), **named}
        asked = {"host": "hostname", "port": "port", "rank": "rank", "world": "world_size"}
        journal.add("store", e=0, at=source.line(), **{key: bound.get(name) for key, name in asked.items()})
        try:
            with unseen:
                store = create(*arguments, **named)
        except BaseException as error:
            journal.add("store", e=1, err=str(error)[:_LONGEST_REASON])
            raise
        journal.add("store", e=1)
        return store

    return wrapper
