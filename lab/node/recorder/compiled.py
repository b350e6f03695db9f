"""Load the compiled recorder, from the node's image or the local engine's cache, and wrap backends with it."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache, wraps
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from . import build
from .patching import replace_methods

why = "not loaded yet"
"""The path of the loaded recorder, or the reason why none is loaded."""


@cache
def load_recorder() -> Any | None:
    """Load the compiled recorder for exactly this torch, Python, and source; None if there is none. Never raises.

    The agent loads it once, before it forks workers, so that runs do not spend time on it.
    """
    global why
    try:
        import torch

        name = build.file_name(torch.__version__)
        folders = build.IMAGE_FOLDER, build.cache_folder()
        path = next((path for folder in folders if os.path.isfile(path := os.path.join(folder, name))), None)
        if path is None:
            build_it = "`python -m lab.node.recorder.build`, or `lab image build` for containers, compiles it"
            why = f"there is no {name} in {' or '.join(folders)}; {build_it}"
            return None
        spec: Any = importlib.util.spec_from_file_location(build.MODULE, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        return None
    sys.modules[build.MODULE] = module
    why = path
    return module


def wrap_backends(compiled: ModuleType, group: Any) -> None:
    """Make every process group wrap its backends, while Python code still sees the original names and backends.

    Registers the wrapper of a gloo backend with the type CUSTOM. With the type GLOO, DDP's logger would cast it to
    ProcessGroupGloo.
    """
    types = group.BackendType
    register, set_default, get = group._register_backend, group._set_default_backend, group._get_backend
    backends: WeakKeyDictionary[Any, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()
    """Group -> id of a backend or of its wrapper -> the backend and its wrapper."""
    kinds: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    """Group -> type of its default backend."""

    def as_registered(kind: Any) -> Any:
        return types.CUSTOM if kind == types.GLOO else kind

    @wraps(register)
    def _register_backend(self: Any, device: Any, kind: Any, backend: Any = None) -> None:
        if backend is None:
            register(self, device, kind, backend)
            return
        known = backends.setdefault(self, {})
        if id(backend) not in known:  # one backend may serve several kinds of devices
            wrapper = compiled.wrap(backend)
            known[id(backend)] = known[id(wrapper)] = (backend, wrapper)
        register(self, device, as_registered(kind), known[id(backend)][1])

    @wraps(set_default)
    def _set_default_backend(self: Any, kind: Any) -> None:
        kinds[self] = kind
        set_default(self, as_registered(kind))

    @wraps(get)
    def _get_backend(self: Any, device: Any) -> Any:
        backend = get(self, device)
        return backends.get(self, {}).get(id(backend), (backend,))[0]

    def named_by_kind(method: Any) -> Any:
        return wraps(method)(lambda self: str(kinds[self].name).lower() if self in kinds else str(method(self)))

    def asking_gloo(method: Any) -> Any:
        """Call a method on the gloo backend itself: groups do not support it for backends of the type CUSTOM."""

        @wraps(method)
        def wrapper(self: Any) -> Any:
            known = list(backends.get(self, {}).values()) if kinds.get(self) == types.GLOO else []
            return getattr(known[0][0], method.__name__)() if known else method(self)

        return wrapper

    for replacement in (_register_backend, _set_default_backend, _get_backend):
        setattr(group, replacement.__name__, replacement)
    replace_methods(group, ("name", "_get_backend_name"), named_by_kind)
    replace_methods(group, ("_get_sequence_number_for_group", "_set_sequence_number_for_group"), asking_gloo)
