"""The Python recorder: a process group that writes down every call and passes it on to a plain one.

It passes calls on to another process group rather than to its own base class: the base class would be called with the
interpreter's lock held, while a thread of gloo may hold the lock that it needs and wait for the interpreter's.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch._C._distributed_c10d as c10d

from .calls import Call, RecordedWork
from .journal import journal

OPERATIONS = {
    "all_reduce": ("allreduce",),
    "all_reduce_coalesced": ("allreduce_coalesced",),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
    "all_gather": ("allgather",),
    "all_gather_into_tensor": ("_allgather_base", "all_gather_single"),
    "all_gather_coalesced": ("allgather_coalesced",),
    "all_gather_into_tensor_coalesced": ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "reduce_scatter": ("reduce_scatter",),
    "reduce_scatter_tensor": ("_reduce_scatter_base", "reduce_scatter_single"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
    "all_to_all": ("alltoall",),
    "all_to_all_single": ("alltoall_base", "all_to_all_single"),
    "barrier": ("barrier",),
    "monitored_barrier": ("monitored_barrier",),
    "send": ("send",),
    "recv": ("recv", "recv_anysource"),
}
"""Name of an operation in the trace -> methods of ProcessGroup that call it, in one version of torch or another."""
PlainGroup = c10d.ProcessGroup


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

    def getBackendName(self) -> str:  # noqa: D102, N802 - PyTorch's
        return str(self._plain.name())


def _recorded(op: str, name: str) -> Callable[..., Any]:
    """A method of the plain group whose calls are written down."""
    return recorded(op, getattr(PlainGroup, name), lambda self: self._plain)


def recorded(
    op: str, plain_method: Any, plain_of: Callable[[Any], Any], begin: Callable[..., Call] = Call
) -> Callable[..., Any]:
    """A method of a group whose calls are written down; `plain_of` gives what it is then called with."""

    @functools.wraps(plain_method)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        plain = plain_of(self)
        if not journal.on:
            return plain_method(plain, *arguments, **named)
        try:
            facts, inputs, outputs = describe(op, (*arguments, *named.values()))
            message, waits = "peer" in facts, facts.get("async") is False
            number = {} if message else {"seq": next(_sequence_of(self))}
            late = {} if message or waits else {"late": 1}
            call = begin({"op": op, "g": self.group_name, **number, **facts, **late}, inputs, outputs)
        except Exception as error:  # arguments that nobody thought of: the script goes on, without a record
            journal.cut(f"{op} cannot be recorded: {type(error).__name__}: {error}")
            return plain_method(plain, *arguments, **named)
        try:
            work = plain_method(plain, *arguments, **named)
            if work is not None and waits:
                work.wait()  # the caller does it next; waited for here, the call ends here
        except BaseException as error:
            call.end(error)
            raise
        if work is None or waits:
            call.finish()
            return work
        return RecordedWork(work, call) if message else call.end_with(work)

    return method


def _sequence_of(group: Any) -> Iterator[int]:
    """Numbers of a group's collectives."""
    numbers: Iterator[int] = vars(group).setdefault("_recorded_sequence", itertools.count(1))
    return numbers


def describe(op: str, given: tuple[Any, ...]) -> tuple[dict[str, Any], Any, Any]:
    """What a begin line says of a call with these arguments, tensors that it takes, tensors that it fills."""
    options = given[-1] if given else None
    facts: dict[str, Any] = {"async": bool(getattr(options, "asyncOp", op != "monitored_barrier"))}
    if "reduce" in op:
        reduction = getattr(options, "reduceOp", options)
        facts["red"] = getattr(getattr(reduction, "op", reduction), "name", None) or "SUM"
    if op in ("broadcast", "reduce", "gather", "scatter"):
        facts["root"] = getattr(options, "rootRank", 0)
    if op == "all_to_all_single" and len(given) > 3 and (given[2] or given[3]):
        facts["split"] = [list(given[2]), list(given[3])]
    if op in ("send", "recv"):
        facts = {"peer": given[1] if len(given) > 2 else -1, "tag": options}
        return (facts, _flat(given[0]), []) if op == "send" else (facts, [], _flat(given[0]))
    if op in ("barrier", "monitored_barrier"):
        return facts, None, None
    if op in ("all_reduce", "all_reduce_coalesced", "broadcast", "reduce"):  # in place
        return facts, _flat(given[0]), None
    return facts, _flat(given[1]), _flat(given[0])


def _flat(value: Any) -> list[torch.Tensor]:
    """Every tensor in a tensor, a list of them, or a list of lists."""
    return [value] if isinstance(value, torch.Tensor) else [tensor for item in value for tensor in _flat(item)]


def _passed_on(_: str, name: str) -> Callable[..., Any]:
    """A method of the plain group."""
    return lambda self, *arguments: getattr(self._plain, name)(*arguments)


def _done_to_both(_: str, name: str) -> Callable[..., Any]:
    """A method that tells a group what it is: PyTorch asks this one, too."""

    def method(self: RecordedGroup, *arguments: Any) -> None:
        getattr(PlainGroup, name)(self, *arguments)
        getattr(self._plain, name)(*arguments)

    return method


def _give(make: Callable[[str, str], Callable[..., Any]], op: str, names: Iterable[str]) -> None:
    """Give the class those methods that this version of torch has."""
    for name in names:
        if hasattr(PlainGroup, name):
            setattr(RecordedGroup, name, make(op, name))


for _op, _methods in OPERATIONS.items():
    _give(_recorded, _op, _methods)
_give(_passed_on, "", ("name", "get_group_store", "_start_coalescing", "_end_coalescing"))
_give(_done_to_both, "", ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc"))
for _attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
    setattr(RecordedGroup, _attribute, getattr(PlainGroup, _attribute))
