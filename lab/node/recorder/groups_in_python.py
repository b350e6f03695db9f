"""Process groups that are written in Python, as that of torch-mpi: their methods are recorded where they stand.

torch makes such a group in the place of its own, which would have been wrapped.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from . import handles, threads
from .calls import Call, CompiledCall, RecordedWork
from .python_group import OPERATIONS, PlainGroup, RecordedGroup, recorded

_known: set[type] = {PlainGroup, RecordedGroup}


def record(group: Any, native: Any = None) -> bool:
    """Have the calls of all groups of this one's class recorded; by the compiled recorder where it is given.

    Returns whether that was still to be done.
    """
    kind = type(group)
    if kind in _known:
        return False
    _known.add(kind)
    begin = Call if native is None else functools.partial(CompiledCall, native)
    for op, names in OPERATIONS.items():
        for name in names:
            method = _own_method(kind, name)
            if method is not None:
                setattr(kind, name, recorded(op, method, lambda self: self, begin))
    library = sys.modules[kind.__module__].__file__
    if library:
        handles.add_library(os.path.join(os.path.dirname(library), ""))
    handles.watch_group(kind)
    threads.watch_group(kind)
    handles.watch_class(RecordedWork)
    return True


def _own_method(kind: type, name: str) -> Any:
    """A method that the class has from itself or from what it is built upon, but not from torch."""
    for one in kind.__mro__:
        if one is PlainGroup:
            return None
        if name in vars(one):
            return vars(one)[name]
    return None
