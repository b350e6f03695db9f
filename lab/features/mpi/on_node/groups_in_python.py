"""Process groups that are written in Python, such as torch-mpi's: the recorder wraps their methods.

torch uses such a group instead of its own, which the recorder would wrap.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
from typing import Any

from torch._C._distributed_c10d import ProcessGroup as PlainGroup

from ....node.hooks import hooks
from ....node.recorder import handles
from ....node.recorder.python_group import OPERATIONS, Call, RecordedGroup, RecordedWork, Tensors, record_method

_known: set[type] = {PlainGroup, RecordedGroup}


def record_group(group: Any, compiled: Any = None) -> None:
    """Record the calls of all groups of this group's class, with the compiled recorder if there is one."""
    if (kind := type(group)) in _known:
        return
    _known.add(kind)
    begin = Call if compiled is None else functools.partial(CompiledCall, compiled)
    for op, names in OPERATIONS.items():
        for name in names:
            if (method := _own_method(kind, name)) is not None:
                setattr(kind, name, record_method(op, method, lambda self: self, begin))
    library = sys.modules[kind.__module__].__file__
    if library:
        handles.add_library(os.path.join(os.path.dirname(library), ""))
    handles.watch_group(kind)
    handles.watch_class(RecordedWork)
    for watch in hooks("group_class"):
        watch(kind)


def _own_method(kind: type, name: str) -> Any:
    """Return a method that the class has from itself or from a base class outside of torch."""
    own = itertools.takewhile(lambda one: one is not PlainGroup, kind.__mro__)
    return next((vars(one)[name] for one in own if name in vars(one)), None)


class CompiledCall(Call):
    """A call of a group that is written in Python; the compiled recorder writes its lines."""

    def __init__(self, compiled: Any, facts: dict[str, Any], inputs: Tensors | None, outputs: Tensors | None) -> None:
        self.from_anybody = facts.get("peer") == -1
        self._open, self._stream = True, None
        op, group, sequence = facts.pop("op"), facts.pop("g"), facts.pop("seq", 0)
        self._line = compiled.begin(op, group, sequence, inputs, outputs, json.dumps(facts)[1:-1])

    def end(self, error: BaseException | None = None, **facts: Any) -> None:
        """Write that the call is over, and its error; only the first time counts."""
        if self._open:
            self._open = False
            self._line.write(None if error is None else str(error) or type(error).__name__, facts.get("peer", -1))
