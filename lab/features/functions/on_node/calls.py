"""A rank that takes calls: it joins the process group, and runs one function after the other until the caller ends.

A function that raises ends its rank, as a script does, because the other ranks must not wait for it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import linecache
import os
import pickle
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from ....node import warm
from ....node.messages import wire
from ....node.messages.typed import read_typed
from . import call_assertions, call_channels, messages


class ShippedModule(NamedTuple):
    """A module of the caller, with everything below it."""

    name: str
    files: dict[str, str]
    """Text by path, relative to the folder that contains the module; empty: the caller does not send it."""
    own: dict[str, str]
    """Paths to show in stacks, for the caller's own code among these files. Other files have no path."""

    def shown(self, below: str) -> str:
        """Return the path of a file to show in stacks."""
        return self.own.get(below) or f"<lent>/{below}"


class ShippedModuleFinder(importlib.abc.MetaPathFinder):
    """Finds modules that no other finder finds.

    Args:
        ask: requests one from the caller by its name, which has no dot; returns None if that is not possible now.
    """

    def __init__(self, ask: Callable[[str], ShippedModule | None]) -> None:
        self._ask = ask
        self._modules: dict[str, ShippedModule | None] = {}

    def add(self, module: ShippedModule) -> None:
        """Add a module that the caller sent without a request."""
        self._modules[module.name] = module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module if the caller has it."""
        if (top := fullname.partition(".")[0]) not in self._modules:
            if "." in fullname:
                return None  # part of a package that the node has
            self._modules[top] = self._ask(top)
        module, base = self._modules[top], fullname.replace(".", "/")
        for below, package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            if module is not None and below in module.files:
                loader = _Loader(module, below)
                origin = loader.get_filename(fullname)
                spec = importlib.machinery.ModuleSpec(fullname, loader, origin=origin, is_package=package)
                spec.has_location = True
                return spec
        if module is not None and any(name.startswith(f"{base}/") for name in module.files):
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [f"<lent>/{base}"]
            return spec
        return None


class _Loader(importlib.abc.SourceLoader):
    """Loads one file of a shipped module."""

    def __init__(self, module: ShippedModule, below: str) -> None:
        self._module, self._below = module, below

    def get_filename(self, fullname: str) -> str:
        """Return the path that stacks show."""
        return self._module.shown(self._below)

    def get_data(self, path: str | bytes) -> bytes:
        """Return the contents of this file, or of one next to it."""
        for below, text in self._module.files.items():
            if path == self._module.shown(below):
                return text.encode()
        raise OSError(f"{path!r} was not shipped")


_READ_BYTES = 1 << 18


def serve_calls() -> None:
    """Run calls until the caller closes the connection."""
    if call_channels.ends is None:
        raise RuntimeError("lab.distributed did not start this process")
    import torch.distributed as dist  # it tries to import modules that do not exist

    caller = Caller(*call_channels.ends)
    lender = ShippedModuleFinder(caller.request_module)
    sys.meta_path.append(lender)

    surroundings: Surroundings | None = None
    while (message := caller.await_call()) is not None:
        kind, body = message
        if kind == messages.BEGIN:
            if body:
                dist.init_process_group(body.decode())
            surroundings = Surroundings()
            caller.send(messages.READY, "{}.{}".format(*sys.version_info).encode())
        elif kind == messages.MODULE:
            lender.add(read_typed(ShippedModule, json.loads(body)))
        elif kind == messages.CALL and surroundings is not None:
            _answer(caller, body, surroundings)
    with suppress(Exception):  # all calls have their answers, so no error matters
        dist.destroy_process_group()


class Caller:
    """The caller, as the rank sees it."""

    def __init__(self, calls: int, answers: int) -> None:
        self._calls, self._answers = calls, answers
        self._pieces = messages.Pieces(1 << 62)  # the caller is trusted: it could run any code here
        self._waiting: list[tuple[bytes, bytes]] = []
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def receive(self) -> tuple[bytes, bytes] | None:
        """Return its next message; None once it has closed the connection."""
        while not self._waiting:
            if not (chunk := os.read(self._calls, _READ_BYTES)):
                return None
            self._waiting += self._pieces.feed(chunk)
        return self._waiting.pop(0)

    def await_call(self) -> tuple[bytes, bytes] | None:
        """Do the same as `receive` between calls; the name shows in stacks that no call is in progress."""
        return self.receive()

    def send(self, kind: bytes, body: bytes) -> None:
        """Send it a message."""
        view = memoryview(messages.pack_piece(kind, body))
        while view:
            view = view[os.write(self._answers, view) :]

    def request_module(self, name: str) -> ShippedModule | None:
        """Request a module from it."""
        if os.getpid() != self._pid:
            return None  # a fork must not read the messages for its parent
        with self._lock:
            self.send(messages.MODULE, name.encode())
            earlier: list[tuple[bytes, bytes]] = []
            module = None
            while module is None and (message := self.receive()) is not None:
                answer = read_typed(ShippedModule, json.loads(message[1])) if message[0] == messages.MODULE else None
                if answer is not None and answer.name == name:
                    module = answer
                else:  # sent before the request reached the caller
                    earlier.append(message)
            self._waiting[:0] = earlier
        return module if module is not None and module.files else None


def _answer(caller: Caller, body: bytes, surroundings: Surroundings) -> None:
    import torch.distributed as dist

    file, variables = io.BytesIO(body), False
    try:
        filled, sources, settings, variables = pickle.load(file)  # noqa: S301 - from who may run anything here
        for name, text in sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        call_assertions.SETTINGS.update(settings)
        function, arguments, named = pickle.load(file)  # noqa: S301
        if isinstance(path := named.get("tmp_path"), Path) and not path.exists():  # it is on the caller's machine
            named["tmp_path"] = Path(os.environ["LAB_SHARED"], *path.parts[-3:])
            named["tmp_path"].mkdir(parents=True, exist_ok=True)
        if filled:
            known = {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "group": dist.group.WORLD}
            arguments, named = fill_arguments(function, {name: known[name] for name in filled}, arguments, named)
        value = function(*arguments, **named)
    except BaseException as error:
        _flush_prints()
        caller.send(messages.FAILURE, _json(describe_failure(error, variables=variables)))
        raise
    try:
        kind, answer = messages.VALUE, messages.write_value(value, messages.LIMIT_BYTES)
    except messages.Unsendable as error:
        kind, answer = messages.KEPT, str(error).encode("utf-8", "replace")
    del value, function, arguments, named
    _flush_prints()
    groups = surroundings.groups
    caller.send(messages.STATE, _json(messages.State(surroundings.renew(), groups)))
    caller.send(kind, answer)


def fill_arguments(
    function: Callable[..., Any], filled: dict[str, Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments of a call; the rank fills in its own parameters if they are missing."""
    signature = inspect.signature(function)
    wanted = [one for name, one in signature.parameters.items() if name not in filled]
    others = {name: value for name, value in named.items() if name not in filled}
    values = signature.replace(parameters=wanted).bind(*arguments, **others).arguments
    values.update({name: named.get(name, value) for name, value in filled.items()})
    in_order = OrderedDict((name, values[name]) for name in signature.parameters if name in values)
    whole = inspect.BoundArguments(signature, in_order)
    return whole.args, whole.kwargs


def _flush_prints() -> None:
    """Flush the streams, so that the output of the function precedes its answer."""
    from ....node.rank.worker import wait_until_read

    for stream, pipe in ((sys.stdout, 1), (sys.stderr, 2)):
        with suppress(Exception):  # the function may have replaced the stream by anything
            stream.flush()
            wait_until_read(pipe)


def _json(message: Any) -> bytes:
    return json.dumps(wire.to_plain_data(message), separators=(",", ":")).encode("utf-8", "surrogatepass")


# -- state of the process that a function may change


class Surroundings:
    """State of a rank after it has joined the process group; the next function gets the same state."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._dist = dist
        self._c10d: Any = dist.distributed_c10d
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        settings = (
            (torch.get_default_dtype, torch.set_default_dtype),
            (torch.get_default_device, lambda _: torch.set_default_device(None)),
            (torch.is_grad_enabled, torch.set_grad_enabled),
            (torch.get_num_threads, torch.set_num_threads),
            (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),  # imports a lot
            (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        )
        self._settings: list[tuple[Any, Any, Any]] = [(get, put, get()) for get, put in settings]
        """Settings of torch: the function that reads it, the one that writes it, and its initial value."""
        self._group = dist.group.WORLD
        self._known = set(self._c10d._world.pg_map)
        self._made = False
        if self._group is None:  # a new group could not use the same store
            make = self._c10d.init_process_group

            @functools.wraps(make)
            def noted(*arguments: Any, **named: Any) -> Any:
                self._made = True
                return make(*arguments, **named)

            self._c10d.init_process_group = dist.init_process_group = noted

    def renew(self) -> str:
        """Restore the state; return why that is not completely possible, or nothing."""
        if os.getcwd() != self._folder:
            os.chdir(self._folder)
        if os.environ != self._environment:
            for name in os.environ.keys() - self._environment.keys():
                del os.environ[name]
            os.environ.update(self._environment)
        sys.path[:] = self._path
        for get, put, before in self._settings:
            if get() != before:
                put(before)
        random.seed()
        warm.renew_random_state()
        if self._made or self._dist.group.WORLD is not self._group:
            return "the function destroyed or created the process group"
        for group in [group for group in self._c10d._world.pg_map if group not in self._known]:
            self._dist.destroy_process_group(group)
        return ""

    @property
    def groups(self) -> int:
        """Return how many process groups this process has created; it has to be the same on all ranks."""
        return int(self._c10d._world.group_count)


# -- an exception as plain data: enough for the caller to show it as if it had been raised there

_OWN = os.path.join(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")), "")
_LONGEST_TEXT = 60_000
_LONGEST_SHOWN = 240
_MOST_PLACES = 60
_MOST_VARIABLES = 40
_DEEPEST = 5
"""Most exceptions of a chain."""


def describe_failure(
    error: BaseException, *, variables: bool = False, chain: tuple[BaseException, ...] = ()
) -> messages.Failure:
    """Describe an exception, with its traceback and its causes.

    Args:
        error: The exception.
        variables: Whether to include local variables in addition to arguments.
        seen: The exceptions that it led to.
    """
    chain = (*chain, error)

    def describe_origin(other: BaseException | None) -> messages.Failure | None:
        is_described = other is None or len(chain) >= _DEEPEST or any(other is one for one in chain)
        return None if other is None or is_described else describe_failure(other, variables=variables, chain=chain)

    try:
        text = _clip(str(error), _LONGEST_TEXT)
    except Exception as another:
        text = f"(no text: str() of it raised {type(another).__name__})"
    cause = describe_origin(error.__cause__)
    return messages.Failure(
        module=str(type(error).__module__),
        kind=type(error).__qualname__,
        text=text,
        frames=tuple(_frames(error.__traceback__, variables)),
        notes=tuple([_clip(str(note), _LONGEST_TEXT) for note in getattr(error, "__notes__", ())][:10]),
        cause=cause,
        context=None if cause or error.__suppress_context__ else describe_origin(error.__context__),
    )


def _frames(traceback: TracebackType | None, variables: bool) -> list[messages.Frame]:
    frames = []
    while traceback is not None:
        code, values = traceback.tb_frame.f_code, traceback.tb_frame.f_locals
        if not code.co_filename.startswith((_OWN, "<frozen importlib")):
            arguments = [name for name in code.co_varnames[: code.co_argcount] if name in values]
            others = [name for name in values if name not in arguments and name.isidentifier()] if variables else []
            frames.append(
                messages.Frame(
                    file=code.co_filename,
                    line=traceback.tb_lineno or code.co_firstlineno,
                    function=code.co_name,
                    first_line=code.co_firstlineno,
                    arguments={name: _shown(values[name]) for name in arguments},
                    variables={name: _shown(values[name]) for name in others[:_MOST_VARIABLES]},
                    hidden=values.get("__tracebackhide__") is True,
                )
            )
        traceback = traceback.tb_next
    half = _MOST_PLACES // 2
    return frames if len(frames) <= _MOST_PLACES else [*frames[:half], *frames[-half:]]


def _shown(value: Any) -> str:
    try:
        return _clip(repr(value), _LONGEST_SHOWN)
    except Exception as error:
        return f"<{type(error).__name__} in repr of a {type(value).__name__}>"


def _clip(text: str, most: int) -> str:
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"
