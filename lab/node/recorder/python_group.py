"""The Python recorder: a process group that records every call and forwards it to another process group.

It does not forward calls to its own base class, which would run with the interpreter's lock held. A thread of gloo may
wait for that lock while it holds a lock that the call needs.
"""

# ruff: noqa: D102 - methods that override PyTorch's are documented there

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import ProcessGroup as PlainGroup
from torch._C._distributed_c10d import Work

from ..hooks import hooks
from .journal import journal, source
from .patching import Unseen, do_nothing

_LONGEST_REASON = 300
_numbers = itertools.count(1)
Tensors = Sequence[torch.Tensor]
_start_time = next(iter(hooks("stream_time")), do_nothing)
_HOLDS = hooks("hold_call")
_MOST = 4096
"""The summary of a tensor with more elements uses a sample of evenly spaced blocks, like the compiled recorder."""
_BLOCKS, _BLOCK = 32, 8
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CODES = {torch.float32: "f", torch.float64: "d", torch.int64: "q", torch.int32: "i"}
"""Formats in which Python reads memory; twice as fast as torch after a large call has evicted the CPU's caches."""
_NAMED_ALIKE = ("broadcast", "reduce", "scatter", "reduce_scatter", "barrier", "monitored_barrier", "send")
OPERATIONS = {
    **{name: (name,) for name in _NAMED_ALIKE},
    "gather": ("gather", "gather_single", "gather_into_tensor"),
    "all_reduce": ("allreduce",),
    "all_reduce_coalesced": ("allreduce_coalesced",),
    "all_gather": ("allgather",),
    "all_gather_into_tensor": ("_allgather_base", "all_gather_single"),
    "all_gather_coalesced": ("allgather_coalesced",),
    "all_gather_into_tensor_coalesced": ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
    "reduce_scatter_tensor": ("_reduce_scatter_base", "reduce_scatter_single"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
    "all_to_all": ("alltoall",),
    "all_to_all_single": ("alltoall_base", "all_to_all_single"),
    "recv": ("recv", "recv_anysource"),
}
"""Name of an operation in the trace -> methods of ProcessGroup that call it, in any version of torch."""


class Call(Unseen):
    """A call whose begin line is in the trace.

    No inputs: a call without tensors. No outputs: a call that works in place.
    """

    def __init__(self, facts: dict[str, Any], inputs: Tensors | None, outputs: Tensors | None) -> None:
        self.from_anybody = facts.get("peer") == -1
        self._number, self._open = next(_numbers), True
        self._results = (inputs if outputs is None else outputs) or ()
        self._stream: Any = _start_time((*(inputs or ()), *(outputs or ())))
        self._most_values = journal.values if self._stream is None else 0  # reading from a GPU would block
        if inputs is not None:
            facts.update(_shapes("in", inputs), **describe_contents("i", inputs, self._most_values))
        if outputs is not None:
            facts.update(_shapes("out", outputs))
        facts.update(source.locate())
        for hold in _HOLDS:
            hold(self._number, facts)
        journal.add("begin", i=self._number, **facts)

    def end(self, error: BaseException | None = None, **facts: Any) -> None:
        """Write the end line, with the error of a failed call; only the first call has an effect."""
        if not self._open:
            return
        self._open, now = False, time.monotonic_ns()
        if error is None:
            facts.update(describe_contents("o", self._results, self._most_values))
        else:
            facts["err"] = (str(error).partition("\n")[0] or type(error).__name__)[:_LONGEST_REASON]
        journal.add("end", t=now, i=self._number, **facts)
        self._results = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        """Write the end line of a call that failed."""
        if error is not None:
            self.end(error)
        super().__exit__(kind, error, trace)

    def finish(self, **facts: Any) -> None:
        """Write the end line now; for tensors on a GPU, when the current stream reaches this point."""
        end = functools.partial(self.end, **facts)
        end() if self._stream is None else self._stream.end(end)

    def end_with(self, work: Any) -> Any:
        """Write the end line once the backend completes the call; return the handle for the caller."""
        try:
            work.get_future().add_done_callback(self._done)
        except RuntimeError:  # the backend has no futures
            return RecordedWork(work, self)
        return work

    def _done(self, future: Any) -> None:
        try:
            future.value()
        except Exception as error:
            self.end(error)
        else:
            self.finish()  # on a GPU, the current stream of this thread waits for the call


def _shapes(side: str, tensors: Tensors) -> dict[str, Any]:
    described = [[str(tensor.dtype).partition(".")[2], list(tensor.shape)] for tensor in tensors]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.layout is torch.strided)
    return {side: described, f"{side[0]}b": size}


# -- the contents of a tensor as JSON: its elements, or a summary of them
def describe_contents(side: str, tensors: Sequence[torch.Tensor], limit: int) -> dict[str, Any]:
    """Return `iv` or `ov`, the elements of tensors within the limit, else `is` or `os`, a summary of each tensor.

    Empty if no tensor is readable, or the limit is 0.
    """
    readable = [is_readable(tensor) for tensor in tensors]
    if not limit or not any(readable):
        return {}
    whole = sum(tensor.numel() for tensor, ok in zip(tensors, readable) if ok) <= limit
    read = list_elements if whole else summarize_tensor
    return {side + ("v" if whole else "s"): [read(tensor) if ok else None for tensor, ok in zip(tensors, readable)]}


def list_elements(tensor: torch.Tensor) -> list[Any]:
    """Return all elements in order."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        parts = torch.view_as_real(flat)
        return [_shorten(pair, parts.dtype) for pair in parts.tolist()]
    return _shorten(flat.tolist(), flat.dtype)


def summarize_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Return `n`, `norm`, `min`, `max`, and `hash`; also `sampled` if they come from a sample.

    For complex numbers these compare absolute values.
    """
    flat = tensor.detach().contiguous()
    count, dtype, data = flat.numel(), flat.dtype, sample_memory(flat)
    facts: dict[str, Any] = {"n": count}
    if count:
        code: Any = _CODES.get(dtype)
        if code:
            numbers: list[Any] = memoryview(data).cast("B").cast(code).tolist()
        else:
            values = torch.frombuffer(data, dtype=dtype)
            numbers = list((values.abs() if dtype.is_complex else values).tolist())
        norm, least, greatest = math.hypot(*numbers), min(numbers) + 0, max(numbers) + 0
        if not math.isfinite(norm) and any(map(math.isnan, numbers)):
            norm = least = greatest = math.nan
        facts["norm"] = _to_json(norm)
        facts["min"], facts["max"] = _shorten([least, greatest], dtype)
    facts["hash"] = f"{zlib.adler32(data):08x}"
    if count > _MOST:
        facts["sampled"] = _BLOCKS * _BLOCK
    return facts


def sample_memory(flat: torch.Tensor) -> Any:
    """Return the memory of all elements, valid as long as the tensor exists; for a large tensor, a copy of a sample."""
    count, size = flat.numel(), flat.element_size()
    memory = memoryview((ctypes.c_char * (count * size)).from_address(flat.data_ptr()))
    if count <= _MOST:
        return memory
    step, block = (count - _BLOCK) // (_BLOCKS - 1) * size, _BLOCK * size
    return bytearray().join([memory[at : at + block] for at in range(0, _BLOCKS * step, step)])


def is_readable(tensor: torch.Tensor) -> bool:
    """Return whether the elements are plain numbers in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and (type(tensor) is torch.Tensor or type(tensor).__module__ == "torch.nn.parameter")
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _shorten(numbers: list[Any], dtype: torch.dtype) -> list[Any]:
    """Return numbers as JSON, with no more digits than distinguish the numbers of their type."""
    if dtype not in _NARROW:
        return [_to_json(number) for number in numbers]
    shorts = [float(text) for text in ("%.7g " * len(numbers) % tuple(numbers)).split()]
    return [
        short if back == number and number - number == 0 else _to_json(float(f"{number:.9g}"))
        for number, short, back in zip(numbers, shorts, array("f", shorts))
    ]


def _to_json(number: Any) -> Any:
    return str(number) if number - number != 0 else number


# -- handles
class RecordedWork(Work):
    """The handle of a call whose backend has no futures: the call ends when the script waits for it, or polls it."""

    def __init__(self, work: Any, call: Call) -> None:
        super().__init__()
        self._plain, self._call = work, call
        self.ahead: tuple[Any, Exception | None] | None = None
        """Outcome of a wait that the recorder made in advance, for the next wait: some backends allow only one."""

    def wait(self, *arguments: Any, **named: Any) -> Any:
        if self.ahead is not None:
            (result, error), self.ahead = self.ahead, None
            if error is not None:
                raise error
            return result
        with self._call:
            result = self._plain.wait(*arguments, **named)
        self._end()
        return result

    def is_completed(self) -> bool:
        if done := bool(self._plain.is_completed()):
            self._end()
        return done

    def _end(self) -> None:
        self._call.end(**({"peer": self._plain._source_rank()} if self._call.from_anybody else {}))


def _passed_on(name: str) -> Callable[..., Any]:
    """Return a method that calls the wrapped object."""
    return lambda self, *arguments, **named: getattr(self._plain, name)(*arguments, **named)


def _adopt(kind: type, plain: type, make: Callable[[str], Callable[..., Any]], names: Iterable[str]) -> None:
    """Add methods to a class, if the wrapped class of this version of torch has them."""
    for name in names:
        if hasattr(plain, name):
            setattr(kind, name, make(name))


_adopt(
    RecordedWork, Work, _passed_on,
    ("is_success", "exception", "result", "source_rank", "_source_rank", "synchronize", "get_future",
     "get_future_result", "block_current_stream", "_get_op_type", "_get_duration"),
)  # fmt: skip


# -- groups
class _PlainGroupMeta(type(PlainGroup)):  # type: ignore[misc]
    """Make `isinstance` and `issubclass` accept the original ProcessGroup as well."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGroup)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, PlainGroup)


class RecordedGroup(PlainGroup, metaclass=_PlainGroupMeta):
    """A process group whose calls are recorded."""

    def __init__(self, *arguments: Any) -> None:
        rank, size = (arguments[1], arguments[2]) if len(arguments) > 2 else arguments[:2]
        super().__init__(rank, size)  # type: ignore[call-arg]
        plain: Any = PlainGroup  # its constructor differs between versions of torch
        self._plain = plain(*arguments)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's
        return str(self._plain.name())


def record_method(
    op: str, plain_method: Any, plain_of: Callable[[Any], Any], begin: Callable[..., Call] = Call
) -> Callable[..., Any]:
    """Return a method that records a call and forwards it; `plain_of` returns the group to forward to."""

    @functools.wraps(plain_method)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        plain = plain_of(self)
        if not journal.on:
            return plain_method(plain, *arguments, **named)
        try:
            facts, inputs, outputs = describe_call(op, (*arguments, *named.values()))
            message, waits = "peer" in facts, facts.get("async") is False
            number = {} if message else {"seq": next(vars(self).setdefault("_recorded_sequence", itertools.count(1)))}
            late = {} if message or waits else {"late": 1}
            call = begin({"op": op, "g": self.group_name, **number, **facts, **late}, inputs, outputs)
        except Exception as error:  # unexpected arguments: the script continues without a recording
            journal.cut(f"the recorder cannot record {op}: {type(error).__name__}: {error}")
            return plain_method(plain, *arguments, **named)
        with call:
            if (work := plain_method(plain, *arguments, **named)) is not None and waits:
                work.wait()  # the caller would wait next; a wait here ends the call here
        if work is None or waits:
            call.finish()
            return work
        return RecordedWork(work, call) if message else call.end_with(work)

    return method


def describe_call(op: str, arguments: tuple[Any, ...]) -> tuple[dict[str, Any], Any, Any]:
    """Return the facts of a call for its begin line, its input tensors, and its output tensors."""
    options = arguments[-1] if arguments else None
    facts: dict[str, Any] = {"async": bool(getattr(options, "asyncOp", op != "monitored_barrier"))}
    if "reduce" in op:
        reduction = getattr(options, "reduceOp", options)
        facts["red"] = getattr(getattr(reduction, "op", reduction), "name", None) or "SUM"
    if op in ("broadcast", "reduce", "gather", "scatter"):
        facts["root"] = getattr(options, "rootRank", 0)
    if op == "all_to_all_single" and len(arguments) > 3 and (arguments[2] or arguments[3]):
        facts["split"] = [list(arguments[2]), list(arguments[3])]
    if op in ("send", "recv"):
        facts = {"peer": arguments[1] if len(arguments) > 2 else -1, "tag": options}
        return (facts, _flat(arguments[0]), []) if op == "send" else (facts, [], _flat(arguments[0]))
    if op in ("barrier", "monitored_barrier"):
        return facts, None, None
    if op in ("all_reduce", "all_reduce_coalesced", "broadcast", "reduce"):  # in place
        return facts, _flat(arguments[0]), None
    return facts, _flat(arguments[1]), _flat(arguments[0])


def _flat(value: Any) -> list[torch.Tensor]:
    """Return every tensor in a tensor, a list of tensors, or a list of lists."""
    return [value] if isinstance(value, torch.Tensor) else [tensor for item in value for tensor in _flat(item)]


def _done_to_both(name: str) -> Callable[..., Any]:
    """Return a setter that also calls the wrapped group: PyTorch queries both."""

    def method(self: RecordedGroup, *arguments: Any) -> None:
        getattr(PlainGroup, name)(self, *arguments)
        getattr(self._plain, name)(*arguments)

    return method


def _recorded(op: str, name: str) -> Callable[..., Any]:
    return record_method(op, getattr(PlainGroup, name), lambda self: self._plain)


for _op, _methods in OPERATIONS.items():
    _adopt(RecordedGroup, PlainGroup, functools.partial(_recorded, _op), _methods)
_adopt(
    *(RecordedGroup, PlainGroup, _passed_on),
    ("name", "get_group_store", "_start_coalescing", "_end_coalescing",
     "register_pre_hook", "unregister_pre_hook", "register_post_hook", "unregister_post_hook"),
)  # fmt: skip
_adopt(
    *(RecordedGroup, PlainGroup, _done_to_both),
    ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc"),
)
for _attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
    setattr(RecordedGroup, _attribute, getattr(PlainGroup, _attribute))


def attach_hooks_inside() -> None:
    """Make PyTorch's hooks of groups, such as NanCheckHook, attach to the wrapped group, where its calls arrive."""
    for kind in vars(c10d).values():
        if isinstance(kind, type) and hasattr(kind, "attach"):
            inside = lambda attach, group, *rest: attach(getattr(group, "_plain", group), *rest)  # noqa: E731
            kind.attach = staticmethod(functools.partial(inside, kind.attach))
