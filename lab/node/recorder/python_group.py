"""The Python recorder: a process group that writes down every call and passes it on to a plain one.

It passes calls on to another process group rather than to its own base class: the base class would be called with the
interpreter's lock held, while a thread of gloo may hold the lock that it needs and wait for the interpreter's.
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
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup as PlainGroup
from torch._C._distributed_c10d import Work

from ..hooks import hooks
from .journal import journal, source
from .patching import do_nothing

_LONGEST_REASON = 300
_numbers = itertools.count(1)
Tensors = Sequence[torch.Tensor]
_start_time = next(iter(hooks("stream_time")), do_nothing)
_HOLDS = hooks("hold_call")
_MOST = 4096
"""A tensor of more elements is summarised from a sample, taken in evenly spread blocks, as by the compiled recorder."""
_BLOCKS, _BLOCK = 32, 8
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CODES = {torch.float32: "f", torch.float64: "d", torch.int64: "q", torch.int32: "i"}
"""How Python reads what lies in memory; it is twice as fast as torch after a large call has emptied the caches."""
_NAMED_ALIKE = ("broadcast", "reduce", "gather", "scatter", "reduce_scatter", "barrier", "monitored_barrier", "send")
OPERATIONS = {
    **{name: (name,) for name in _NAMED_ALIKE},
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
"""Name of an operation in the trace -> methods of ProcessGroup that call it, in one version of torch or another."""


class Call:
    """A call that has begun; its begin line has been written.

    Without inputs it is one without tensors, without outputs one in place.
    """

    def __init__(self, facts: dict[str, Any], inputs: Tensors | None, outputs: Tensors | None) -> None:
        self.from_anybody = facts.get("peer") == -1
        self._number, self._open = next(_numbers), True
        self._results = (inputs if outputs is None else outputs) or ()
        self._stream: Any = _start_time((*(inputs or ()), *(outputs or ())))
        self._most_values = journal.values if self._stream is None else 0  # reading what is on a GPU waits for it
        if inputs is not None:
            facts.update(_shapes("in", inputs), **describe_contents("i", inputs, self._most_values))
        if outputs is not None:
            facts.update(_shapes("out", outputs))
        facts.update(source.locate())
        for hold in _HOLDS:
            hold(self._number, facts)
        journal.add("begin", i=self._number, **facts)

    def end(self, error: BaseException | None = None, **facts: Any) -> None:
        """Write that the call is over, and why it failed; only the first time counts."""
        if not self._open:
            return
        self._open, now = False, time.monotonic_ns()
        if error is None:
            facts.update(describe_contents("o", self._results, self._most_values))
        else:
            facts["err"] = (str(error).partition("\n")[0] or type(error).__name__)[:_LONGEST_REASON]
        journal.add("end", t=now, i=self._number, **facts)
        self._results = ()

    def finish(self, **facts: Any) -> None:
        """The call is over; where its tensors are on a GPU, once the stream that is current has come so far."""
        if self._stream is None:
            self.end(**facts)
        else:
            self._stream.end(lambda took_ns: self.end(gpu=took_ns, **facts))

    def end_with(self, work: Any) -> Any:
        """Have the end written once the backend is done; returns the handle for the caller."""
        try:
            work.get_future().add_done_callback(self._done)
        except RuntimeError:  # the backend does not tell
            return RecordedWork(work, self)
        return work

    def _done(self, future: Any) -> None:
        try:
            future.value()
        except Exception as error:
            self.end(error)
        else:
            self.finish()  # on a GPU the stream that is current here waits for the call


def _shapes(side: str, tensors: Tensors) -> dict[str, Any]:
    described = [[str(tensor.dtype).partition(".")[2], list(tensor.shape)] for tensor in tensors]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.layout is torch.strided)
    return {side: described, f"{side[0]}b": size}


# -- what is in a tensor, as JSON can say it: its elements, or a summary of them
def describe_contents(side: str, tensors: Sequence[torch.Tensor], limit: int) -> dict[str, Any]:
    """`iv` or `ov`: the elements of tensors, if they are no more than the limit; else `is` or `os`: summaries of each.

    Nothing where none can be read, or the limit is 0.
    """
    readable = [is_readable(tensor) for tensor in tensors]
    if not limit or not any(readable):
        return {}
    whole = sum(tensor.numel() for tensor, ok in zip(tensors, readable) if ok) <= limit
    read = list_elements if whole else summarize_tensor
    return {side + ("v" if whole else "s"): [read(tensor) if ok else None for tensor, ok in zip(tensors, readable)]}


def list_elements(tensor: torch.Tensor) -> list[Any]:
    """All elements in order."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        parts = torch.view_as_real(flat)
        return [_shorten(pair, parts.dtype) for pair in parts.tolist()]
    return _shorten(flat.tolist(), flat.dtype)


def summarize_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """`n`, `norm`, `min`, `max` and `hash`, and `sampled` where they are those of a sample.

    Of complex numbers it is their absolute values that are compared.
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
    """The memory of all elements, as long as the tensor is there; of a large one, a copy of some."""
    count, size = flat.numel(), flat.element_size()
    memory = memoryview((ctypes.c_char * (count * size)).from_address(flat.data_ptr()))
    if count <= _MOST:
        return memory
    step, block = (count - _BLOCK) // (_BLOCKS - 1) * size, _BLOCK * size
    return bytearray().join([memory[at : at + block] for at in range(0, _BLOCKS * step, step)])


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether the elements are plain numbers in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and (type(tensor) is torch.Tensor or type(tensor).__module__ == "torch.nn.parameter")
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _shorten(numbers: list[Any], dtype: torch.dtype) -> list[Any]:
    """Numbers as JSON can say them, in no more digits than tell those of their type from one another."""
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
    """The handle of a call whose backend does not tell when it is done: that is when it is waited for, or asked."""

    def __init__(self, work: Any, call: Call) -> None:
        super().__init__()
        self._plain, self._call = work, call
        self.ahead: tuple[Any, Exception | None] | None = None
        """What came of a wait on behalf of the next one: some backends can be waited for but once."""

    def wait(self, *arguments: Any, **named: Any) -> Any:
        if self.ahead is not None:
            (result, error), self.ahead = self.ahead, None
            if error is not None:
                raise error
            return result
        try:
            result = self._plain.wait(*arguments, **named)
        except BaseException as error:
            self._call.end(error)
            raise
        self._end()
        return result

    def is_completed(self) -> bool:
        done = bool(self._plain.is_completed())
        if done:
            self._end()
        return done

    def _end(self) -> None:
        self._call.end(**({"peer": self._plain._source_rank()} if self._call.from_anybody else {}))


def _passed_on(name: str) -> Callable[..., Any]:
    """A method of what is wrapped."""
    return lambda self, *arguments, **named: getattr(self._plain, name)(*arguments, **named)


def _adopt(kind: type, plain: type, make: Callable[[str], Callable[..., Any]], names: Iterable[str]) -> None:
    """Give a class those methods of what it wraps that this version of torch has."""
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
    """Where torch asks whether something is a process group, a plain one is one, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGroup)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, PlainGroup)


class RecordedGroup(PlainGroup, metaclass=_PlainGroupMeta):
    """A process group whose calls are on record."""

    def __init__(self, *arguments: Any) -> None:
        rank, size = (arguments[1], arguments[2]) if len(arguments) > 2 else arguments[:2]
        super().__init__(rank, size)  # type: ignore[call-arg]
        plain: Any = PlainGroup  # its constructor is another in each version of torch
        self._plain = plain(*arguments)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's
        return str(self._plain.name())


def record_method(
    op: str, plain_method: Any, plain_of: Callable[[Any], Any], begin: Callable[..., Call] = Call
) -> Callable[..., Any]:
    """A method of a group whose calls are written down; `plain_of` gives what it is then called with."""

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


def describe_call(op: str, arguments: tuple[Any, ...]) -> tuple[dict[str, Any], Any, Any]:
    """What a begin line says of a call with these arguments, tensors that it takes, tensors that it fills."""
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
    """Every tensor in a tensor, a list of them, or a list of lists."""
    return [value] if isinstance(value, torch.Tensor) else [tensor for item in value for tensor in _flat(item)]


def _done_to_both(name: str) -> Callable[..., Any]:
    """A method that tells a group what it is: PyTorch asks this one, too."""

    def method(self: RecordedGroup, *arguments: Any) -> None:
        getattr(PlainGroup, name)(self, *arguments)
        getattr(self._plain, name)(*arguments)

    return method


def _recorded(op: str, name: str) -> Callable[..., Any]:
    return record_method(op, getattr(PlainGroup, name), lambda self: self._plain)


for _op, _methods in OPERATIONS.items():
    _adopt(RecordedGroup, PlainGroup, functools.partial(_recorded, _op), _methods)
_adopt(RecordedGroup, PlainGroup, _passed_on, ("name", "get_group_store", "_start_coalescing", "_end_coalescing"))
_adopt(
    *(RecordedGroup, PlainGroup, _done_to_both),
    ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc"),
)
for _attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
    setattr(RecordedGroup, _attribute, getattr(PlainGroup, _attribute))
