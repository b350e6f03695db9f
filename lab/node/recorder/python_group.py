"""The Python recorder: a process group that writes down every call and passes it on to a plain one.

It passes calls on to another process group rather than to its own base class: the base class would be called with the
interpreter's lock held, while a thread of gloo may hold the lock that it needs and wait for the interpreter's.
"""

# ruff: noqa: D102 - methods that override PyTorch's are documented there

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch._C._distributed_c10d as c10d

from . import calls
from .journal import journal

PlainGroup = c10d.ProcessGroup


class Operation:
    """Where a method of ProcessGroup has what.

    Args:
        op: name of the operation in the trace.
        methods: its names in versions of torch, the newest first.
        inputs: position of what is sent; None where nothing is.
        outputs: position of what is filled; None for operations in place.
        options: position of the options.
        reduces: whether the options hold a reduction.
        rooted: whether they hold a root.
        splits: whether the sizes of the splits stand before the options.
    """

    def __init__(
        self,
        op: str,
        *methods: str,
        inputs: int | None = None,
        outputs: int | None = None,
        options: int = 2,
        reduces: bool = False,
        rooted: bool = False,
        splits: bool = False,
    ) -> None:
        self.op, self.methods = op, methods
        self.inputs, self.outputs, self.options = inputs, outputs, options
        self.reduces, self.rooted, self.splits = reduces, rooted, splits

    def options_of(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[bool, tuple[Any, ...]]:
        """Whether the caller asked for a handle, and name, value, name, value, ... of what else is to be said."""
        options = arguments[self.options] if len(arguments) > self.options else named.get("opts")
        asynchronous = bool(getattr(options, "asyncOp", self.op != "monitored_barrier"))
        if self.reduces:
            reduction = _NAMES[hash(getattr(options, "reduceOp", c10d.ReduceOp.SUM))]
            fields: tuple[Any, ...] = ("async", asynchronous, "red", reduction)
        else:
            fields = ("async", asynchronous)
        if self.rooted:
            fields += ("root", getattr(options, "rootRank", 0))
        if self.splits and len(arguments) > 3 and (arguments[2] or arguments[3]):
            fields += ("split", (tuple(arguments[2]), tuple(arguments[3])))
        return asynchronous, fields


OPERATIONS = (
    Operation("all_reduce", "allreduce", inputs=0, options=1, reduces=True),
    Operation("all_reduce_coalesced", "allreduce_coalesced", inputs=0, options=1, reduces=True),
    Operation("broadcast", "broadcast", inputs=0, options=1, rooted=True),
    Operation("reduce", "reduce", inputs=0, options=1, reduces=True, rooted=True),
    Operation("all_gather", "allgather", inputs=1, outputs=0),
    Operation("all_gather_into_tensor", "all_gather_single", "_allgather_base", inputs=1, outputs=0),
    Operation("all_gather_coalesced", "allgather_coalesced", inputs=1, outputs=0),
    Operation(
        "all_gather_into_tensor_coalesced",
        *("all_gather_single_coalesced", "allgather_into_tensor_coalesced"),
        inputs=1,
        outputs=0,
    ),
    Operation("gather", "gather", inputs=1, outputs=0, rooted=True),
    Operation("scatter", "scatter", inputs=1, outputs=0, rooted=True),
    Operation("reduce_scatter", "reduce_scatter", inputs=1, outputs=0, reduces=True),
    Operation(
        "reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base", inputs=1, outputs=0, reduces=True
    ),
    Operation(
        "reduce_scatter_tensor_coalesced",
        *("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
        inputs=1,
        outputs=0,
        reduces=True,
    ),
    Operation("all_to_all", "alltoall", inputs=1, outputs=0),
    Operation("all_to_all_single", "all_to_all_single", "alltoall_base", inputs=1, outputs=0, options=4, splits=True),
    Operation("barrier", "barrier", options=0),
    Operation("monitored_barrier", "monitored_barrier", options=0),
)
_ALIASES = {"_allgather_base": "all_gather_single", "_reduce_scatter_base": "reduce_scatter_single"}
"""Old names that Python code still calls; the base class would not come by the new ones."""
_NAMES = {
    hash(getattr(c10d.ReduceOp, name)): name  # which an operation shares with what holds it, and is quicker to be had
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    if hasattr(c10d.ReduceOp, name)
}


class _LooksPlain(type(PlainGroup)):  # type: ignore[misc]
    """Where torch asks whether something is a process group, a plain one is one, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGroup)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, PlainGroup)


class RecordedGroup(PlainGroup, metaclass=_LooksPlain):
    """A process group whose calls are on record."""

    def __init__(self, *arguments: Any) -> None:
        rank, size = (arguments[1], arguments[2]) if len(arguments) > 2 else arguments[:2]
        super().__init__(rank, size)  # type: ignore[call-arg]
        plain: Any = PlainGroup  # its constructor is another in each version of torch
        self._plain = plain(*arguments)
        self._recorded_name = ""
        self._sequence = itertools.count(1)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        return str(self._plain.name())

    def name(self) -> str:
        return str(self._plain.name())

    def get_group_store(self) -> Any:
        return self._plain.get_group_store()

    def _register_backend(self, *arguments: Any) -> None:
        super()._register_backend(*arguments)
        self._plain._register_backend(*arguments)

    def _set_default_backend(self, *arguments: Any) -> None:
        super()._set_default_backend(*arguments)
        self._plain._set_default_backend(*arguments)

    def _set_group_name(self, name: str) -> None:
        self._recorded_name = str(name)
        super()._set_group_name(name)
        self._plain._set_group_name(name)

    def _set_group_desc(self, description: str) -> None:
        super()._set_group_desc(description)
        self._plain._set_group_desc(description)

    def _start_coalescing(self, *arguments: Any) -> Any:
        return self._plain._start_coalescing(*arguments)

    def _end_coalescing(self, *arguments: Any) -> Any:
        return self._plain._end_coalescing(*arguments)

    def send(self, tensors: Any, destination: int, tag: int) -> Any:
        return self._transfer(
            "send", self._plain.send, _flat(tensors), (), destination, tag, (tensors, destination, tag)
        )

    def recv(self, tensors: Any, origin: int, tag: int) -> Any:
        return self._transfer("recv", self._plain.recv, (), _flat(tensors), origin, tag, (tensors, origin, tag))

    def recv_anysource(self, tensors: Any, tag: int) -> Any:
        return self._transfer("recv", self._plain.recv_anysource, (), _flat(tensors), -1, tag, (tensors, tag))

    def _transfer(
        self, op: str, method: Callable[..., Any], sent: Any, received: Any, peer: int, tag: int, arguments: Any
    ) -> Any:
        if not journal.on:
            return method(*arguments)
        call = calls.begin(self._recorded_name, 0, op, sent, received, ("peer", peer, "tag", tag))
        try:
            work = method(*arguments)
        except BaseException as error:
            call.end(error)
            raise
        return RecordedWork(work, call, peer < 0)


def _recorded(operation: Operation, name: str) -> Callable[..., Any]:
    plain_method = getattr(PlainGroup, name)

    @functools.wraps(plain_method)
    def method(self: RecordedGroup, *arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return plain_method(self._plain, *arguments, **named)
        try:
            asynchronous, fields = operation.options_of(arguments, named)
            sent, filled = operation.inputs, operation.outputs
            inputs = None if sent is None or sent >= len(arguments) else _flat(arguments[sent])
            outputs = None if filled is None or filled >= len(arguments) else _flat(arguments[filled])
            call = calls.begin(self._recorded_name, next(self._sequence), operation.op, inputs, outputs, fields)
        except Exception as error:  # arguments that nobody thought of: the script goes on, without a record
            journal.cut(f"{operation.op} cannot be recorded: {type(error).__name__}: {error}")
            return plain_method(self._plain, *arguments, **named)
        try:
            work = plain_method(self._plain, *arguments, **named)
            if work is not None and not asynchronous:
                work.wait()  # the caller would do it next; this way no other thread has to see the end
        except BaseException as error:
            call.end(error)
            raise
        if work is None or not asynchronous:
            call.end()
            return work
        try:
            work.get_future().add_done_callback(call.over)  # when the backend is done with it
        except RuntimeError:
            return RecordedWork(work, call, False)  # it does not tell
        return work

    return method


class RecordedWork(c10d.Work):
    """The handle of a call whose end the backend does not tell: it ends when waited for, or seen to be completed."""

    def __init__(self, work: Any, call: calls.Call, from_anybody: bool) -> None:
        super().__init__()
        self._work, self._call, self._from_anybody = work, call, from_anybody

    def wait(self, *arguments: Any, **named: Any) -> Any:
        try:
            done = self._work.wait(*arguments, **named)
        except BaseException as error:
            self._call.end(error)
            raise
        self._finish()
        return done

    def is_completed(self) -> bool:
        done = bool(self._work.is_completed())
        if done:
            self._finish()
        return done

    def _finish(self) -> None:
        self._call.end(None, self._work._source_rank() if self._from_anybody else None)


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: RecordedWork, *arguments: Any, **named: Any) -> Any:
        return getattr(self._work, name)(*arguments, **named)

    return method


def _flat(value: Any) -> Any:
    """Every tensor in a tensor, a list of them, or a list of lists."""
    if type(value) is list and len(value) == 1 and type(value[0]) is torch.Tensor:  # nearly always
        return value
    if isinstance(value, torch.Tensor):
        return (value,)
    return [tensor for item in value for tensor in (_flat(item) if not isinstance(item, torch.Tensor) else (item,))]


def _complete() -> None:
    """Give both classes the methods that are alike."""
    for operation in OPERATIONS:
        found = [name for name in operation.methods if hasattr(PlainGroup, name)]
        if found:
            setattr(RecordedGroup, found[0], _recorded(operation, found[0]))
    for old, new in _ALIASES.items():
        if hasattr(PlainGroup, old) and new in vars(RecordedGroup):
            setattr(RecordedGroup, old, vars(RecordedGroup)[new])
    for name in ("is_success", "exception", "result", "source_rank", "_source_rank", "synchronize", "get_future",
                 "get_future_result", "block_current_stream", "_get_op_type", "_get_duration"):  # fmt: skip
        if hasattr(c10d.Work, name):
            setattr(RecordedWork, name, _passed_on(name))
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(RecordedGroup, attribute, getattr(PlainGroup, attribute))


_complete()
