"""Process groups: the `group` lines say who is in one, the marks of `new_group` and its like who makes and destroys it.

A rank that makes a group without being in it has the mark and no `group` line. The `store` lines say at which address
each rank looked for the store of init_process_group, and whether it found one.
"""

from __future__ import annotations

import inspect
from functools import partial
from types import ModuleType
from typing import Any

from ..hooks import hooks
from . import phases
from .journal import journal, source
from .patching import replace_function, wraps_function

_LONGEST_REASON = 300


def watch_groups(module: ModuleType, compiled: Any) -> None:
    """Have the groups recorded that `torch.distributed.distributed_c10d` makes and destroys.

    Args:
        module: that one.
        compiled: the compiled recorder; None where Python records calls.
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
        if isinstance(group, module.ProcessGroup):  # else this process is not in it
            if type(group).__module__ != module.ProcessGroup.__module__:
                for watch_foreign in hooks("foreign_group"):
                    watch_foreign(group, compiled)
            _describe(module, group, ranks, default)
        return made

    @wraps_function(make)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return make(*arguments, **named)
        ranks = _argument(2, "global_ranks_in_group", arguments, named)
        if make.__name__ == "split_group" or not ranks:  # the default group, which init_process_group's mark is about
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
                finish()  # what was trained is mostly still there, which it is not when the script has ended
        phases.begin_phase("destroy_process_group", g=str(getattr(group, "group_name", "")))
        del group  # else it would be kept: its peers are to notice its end
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
            **({"rank": int(group.rank())} if default else {}),  # a script may give it another than the worker's
        )
    except (AttributeError, KeyError, TypeError):
        pass  # another version of torch: readers do without


def watch_stores(module: ModuleType) -> None:
    """Have the stores recorded that `torch.distributed.rendezvous` makes for init_process_group."""
    replace_function(module, "_create_c10d_store", _looking_for_store)


def _looking_for_store(create: Any) -> Any:
    names = list(inspect.signature(create).parameters)

    @wraps_function(create)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return create(*arguments, **named)
        bound = {**dict(zip(names, arguments)), **named}
        asked = {"host": "hostname", "port": "port", "rank": "rank", "world": "world_size"}
        journal.add("store", e=0, at=source.line(), **{key: bound.get(name) for key, name in asked.items()})
        try:
            store = create(*arguments, **named)
        except BaseException as error:
            journal.add("store", e=1, err=str(error)[:_LONGEST_REASON])
            raise
        journal.add("store", e=1)
        return store

    return wrapper
