"""The compiled recorder: every backend that a process group is given is wrapped in one that records."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary


def wrap_backends(native: ModuleType, group: Any) -> None:
    """Have every process group wrap its backends; what Python code is told of them stays what it would be without that.

    The wrapper of a gloo backend is registered as one of the type CUSTOM: for GLOO, DDP's logger would take it for
    ProcessGroupGloo itself.
    """
    types = group.BackendType
    register, set_default, get = group._register_backend, group._set_default_backend, group._get_backend
    backends: WeakKeyDictionary[Any, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()
    """Group -> id of a backend or of its wrapper -> the backend and its wrapper."""
    kinds: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    """Group -> type of its default backend."""

    def as_registered(kind: Any) -> Any:
        return types.CUSTOM if kind == types.GLOO else kind

    @functools.wraps(register)
    def _register_backend(self: Any, device: Any, kind: Any, backend: Any = None) -> None:
        if backend is None:
            register(self, device, kind, backend)
            return
        known = backends.setdefault(self, {})
        if id(backend) not in known:  # one backend may serve several kinds of devices
            wrapper = native.wrap(backend)
            known[id(backend)] = known[id(wrapper)] = (backend, wrapper)
        register(self, device, as_registered(kind), known[id(backend)][1])

    @functools.wraps(set_default)
    def _set_default_backend(self: Any, kind: Any) -> None:
        kinds[self] = kind
        set_default(self, as_registered(kind))

    @functools.wraps(get)
    def _get_backend(self: Any, device: Any) -> Any:
        found = get(self, device)
        return backends.get(self, {}).get(id(found), (found,))[0]

    group._register_backend = _register_backend
    group._set_default_backend = _set_default_backend
    group._get_backend = _get_backend
    for method in ("name", "_get_backend_name"):
        if hasattr(group, method):
            setattr(group, method, _name(getattr(group, method), kinds))
    for method in ("_get_sequence_number_for_group", "_set_sequence_number_for_group"):
        if hasattr(group, method):
            setattr(group, method, _of_gloo(getattr(group, method), method, types, kinds, backends))


def _of_gloo(method: Any, name: str, types: Any, kinds: Any, backends: Any) -> Any:
    """A method that groups have for known types of backends only, of which CUSTOM is none."""

    @functools.wraps(method)
    def of_gloo(self: Any) -> Any:
        known = list(backends.get(self, {}).values())
        if kinds.get(self) != types.GLOO or not known:
            return method(self)
        return getattr(known[0][0], name)()

    return of_gloo


def _name(method: Any, kinds: WeakKeyDictionary[Any, Any]) -> Any:
    @functools.wraps(method)
    def name(self: Any) -> str:
        kind = kinds.get(self)
        return str(method(self)) if kind is None else str(kind.name).lower()

    return name
