"""The `store` lines: which address each rank looked for a rendezvous store at, and whether it found one."""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

from . import marks
from .journal import journal
from .source import source

_LONGEST_REASON = 300


def watch(module: ModuleType) -> None:
    """Have the stores recorded that `torch.distributed.rendezvous` makes for init_process_group."""
    marks.replace((module,), "_create_c10d_store", _watched)


def _watched(create: Any) -> Any:
    names = list(inspect.signature(create).parameters)

    @functools.wraps(create)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return create(*arguments, **named)
        given = {**dict(zip(names, arguments)), **named}
        asked = {key: given.get(name) for key, name in
                 (("host", "hostname"), ("port", "port"), ("rank", "rank"), ("world", "world_size"))}  # fmt: skip
        journal.add("store", e=0, at=source.place().get("at", ""), **asked)
        try:
            store = create(*arguments, **named)
        except BaseException as error:
            journal.add("store", e=1, err=str(error)[:_LONGEST_REASON])
            raise
        journal.add("store", e=1)
        return store

    return marks.unseen(wrapper)
