"""Process groups: the `group` lines say who is in one, the marks of `new_group` and its like who makes and destroys it.

A rank that makes a group without being in it has the mark and no `group` line.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import marks, replicas
from .holds import holds
from .journal import journal
from .source import source

_found: Callable[[Any], None] = lambda _: None  # noqa: E731 - replaced by `watch`


def watch(module: ModuleType, found: Callable[[Any], None]) -> None:
    """Have the groups recorded that `torch.distributed.distributed_c10d` makes and destroys.

    `found` is called with each that is not torch's own.
    """
    global _found
    _found = found
    public = (module, sys.modules.get("torch.distributed"))
    watched = functools.partial(_watched, module)
    marks.replace((module,), "_new_process_group_helper", watched)
    marks.replace(public, "split_group", watched)
    marks.replace(public, "destroy_process_group", functools.partial(_destroying, module))


def _watched(module: ModuleType, make: Any) -> Any:
    @functools.wraps(make)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return make(*arguments, **named)
        ranks, name = (
            _argument(2, "global_ranks_in_group", arguments, named),
            _argument(5, "group_name", arguments, named),
        )
        if make.__name__ == "split_group" or not ranks:  # the default group, which init_process_group's mark is about
            return _described(module, make(*arguments, **named), ranks)
        count = holds.begin_phase("new_group")
        _mark("new_group", g=str(name), ranks=[int(rank) for rank in ranks])
        try:
            return _described(module, make(*arguments, **named), ranks)
        finally:
            journal.add("mark", n="new_group", e=1)
            holds.end_phase("new_group", count)

    return marks.unseen(wrapper)


def _destroying(module: ModuleType, destroy: Any) -> Any:
    @functools.wraps(destroy)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return destroy(*arguments, **named)
        group = _argument(0, "group", arguments, named) or module.GroupMember.WORLD
        if group is module.GroupMember.WORLD:
            replicas.finish()  # what was trained is mostly still there, which it is not when the script has ended
        count = holds.begin_phase("destroy_process_group")
        _mark("destroy_process_group", g=_name_of(group))
        del group  # else it would be kept: its peers are to notice its end
        try:
            return destroy(*arguments, **named)
        finally:
            journal.add("mark", n="destroy_process_group", e=1)
            holds.end_phase("destroy_process_group", count)

    return wrapper


def _name_of(group: Any) -> str:
    return str(getattr(group, "group_name", ""))


def _argument(place: int, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return arguments[place] if len(arguments) > place else named.get(name)


def _mark(name: str, **facts: Any) -> None:
    place = source.place()
    journal.add("mark", n=name, e=0, **({"at": place["at"]} if place else {}), **facts)


def _described(module: ModuleType, made: Any, ranks: Any) -> Any:
    """What was made, after its `group` line."""
    if isinstance(made, tuple):  # the group and its store
        _describe(module, made[0], ranks, default=not ranks)
    else:
        _describe(module, made, sorted(module._world.pg_group_ranks.get(made, ())))
    return made


def _describe(module: ModuleType, group: Any, ranks: Any, default: bool = False) -> None:
    if not isinstance(group, module.ProcessGroup):
        return  # this process is not in it
    if type(group).__module__ != module.ProcessGroup.__module__:
        _found(group)
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
