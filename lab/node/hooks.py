"""Hooks for features in the kernel's code on nodes: functions that their packages for nodes name in `HOOKS`.

`HOOKS` maps the name of a hook to `function` of the package, or `module:function` of one of its modules. The kernel
calls these:

- `agent(agent)`: an agent begins; returns an extension. It has `actions` by kind of message; `register(selector)` and
  `pass_on(ready)`, called before and after the agent waits; and `pids`, processes that belong to no run.
- `network(peers)`: packets may leave this node only for addresses from the first to the last of `peers`.
- `succession()`: the agent of a strict container begins. Returns in a new process for each run: the ports of the stores
  of earlier runs, and a function that ends the process.
- `worker(spec)`: a worker is about to run its script; `spec` is its specification.
- `noted(name, value)`: the script has recorded a note.
- `environment(spec)`: the last call before the script, without privileges.
- `recorder()`: the recorder starts for the first time in this process, or in one that it is a fork of.
- `refuse_compiled(torch)`: returns why the compiled recorder cannot be used in this process; empty: it can.
- `recording(compiled)`: recording has begun, by the compiled recorder or, if that is None, by Python.
- `recorder_stop()`: recording is about to end, or the default group to be destroyed.
- `group_class(kind)`: calls of the groups of this class are recorded in Python.
- `foreign_group(group, compiled)`: a group was made whose class is not PyTorch's.
- `hold_call(number, facts)`: a call that Python records is about to begin.
- `stream_time(tensors)`: returns the clock of a call whose tensors are on a device; None: they are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

_ROOT = __package__.rpartition(".")[0]
FEATURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "features", "")
"""The folder of the features' packages for nodes."""


_LATE = {"foreign_group", "network", "succession"}
"""Hooks whose modules need torch, or that few agents need."""


@cache
def _packages() -> tuple[ModuleType, ...]:
    names = sorted(os.listdir(FEATURES)) if os.path.isdir(FEATURES) else []
    present = [name for name in names if os.path.isfile(os.path.join(FEATURES, name, "on_node", "__init__.py"))]
    return tuple(import_module(f"{_ROOT}.features.{name}.on_node") for name in present)


@cache
def hooks(name: str) -> tuple[Callable[..., Any], ...]:
    """Return the functions that features name for a hook, in the order of the features' names."""
    functions = []
    for package in _packages():
        module, _, function = getattr(package, "HOOKS", {}).get(name, "").rpartition(":")
        if function:
            functions.append(getattr(import_module(f".{module}", package.__name__) if module else package, function))
    return tuple(functions)


def load_hooks() -> None:
    """Import the modules of hooks, so that the forks of this process need not."""
    for package in _packages():
        for name in getattr(package, "HOOKS", {}).keys() - _LATE:
            hooks(name)
