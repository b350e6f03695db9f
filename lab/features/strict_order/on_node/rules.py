"""The rules of a strict transport: which calls follow each other, and what NCCL rejects, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

VARIABLE = "LAB_STRICT_ORDER"
"""Set for workers of a strict run."""
_TORCH = "https://github.com/pytorch/pytorch/blob/v2.9.0/torch/csrc/distributed/c10d/"
NCCL_GROUP = f"{_TORCH}ProcessGroupNCCL.cpp"
_DOCS = "https://docs.pytorch.org/docs/stable/distributed.html"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs"


class Rule(NamedTuple):
    """A row of the table: what a strict transport does with a kind of call."""

    name: str
    about: str
    """The calls that it is about."""
    nccl: str
    """What NCCL or PyTorch says; text in quotation marks is theirs."""
    source: str
    does: str = ""
    """What happens to them; empty: they are rejected."""


ORDER = (
    Rule("send", "`send`, `isend`", '"This operation is blocking for the GPU"', f"{_NCCL}/api/p2p.html",
         "complete once the receive has begun"),
    Rule("root", "`broadcast`, `reduce`, `gather`, `scatter`",
         '"Collective operations have to be called for each rank"', f"{_NCCL}/usage/collectives.html",
         "complete once every rank has called them"),
    Rule("order", "collectives of all groups",
         '"executed in the same order on different GPUs"', "https://github.com/NVIDIA/nccl/issues/239",
         "begin after all earlier calls have completed"),
    Rule("pair", "messages of two ranks", "one stream for each pair; with `device_id`, one for all", NCCL_GROUP,
         "run in the order of the calls; those of other pairs overlap"),
    Rule("batch", "`batch_isend_irecv`", '"calls within a group can be seen as progressing independently"',
         f"{_NCCL}/usage/p2p.html", "is one call, whose messages overlap"),
)  # fmt: skip
REJECTED = {rule.name: rule for rule in (
    Rule("reduction", "`BAND`, `BOR`, `BXOR`", '"Cannot use ReduceOp.BAND with NCCL"', NCCL_GROUP),
    Rule("dtype", "int16, uint16 to uint64, complex",
         '"Input tensor data type is not supported for NCCL process group"', NCCL_GROUP),
    Rule("layout", "collectives of tensors that are not contiguous", '"Tensors must be contiguous"', NCCL_GROUP),
    Rule("dense", "sparse tensors; tensors on several devices", '"Tensors must be CUDA and dense"', NCCL_GROUP),
    Rule("any source", "`recv` without a source", '"Backend nccl does not support recvAnysource"',
         f"{_TORCH}Backend.hpp"),
    Rule("tag", "messages received in another order, by tags", '"tag is not supported with the NCCL backend"', _DOCS),
    Rule("count", "messages whose sizes or dtypes differ", '"with the same count and data type"',
         f"{_NCCL}/usage/p2p.html"),
    Rule("changed", "tensors of `isend` that change before `wait()`",
         '"Modifying tensor before the request completes causes undefined behavior"', _DOCS),
    Rule("coalesced", "`all_gather_coalesced`", '"ProcessGroupNCCL does not support allgather_coalesced"', NCCL_GROUP),
    Rule("monitored barrier", "`monitored_barrier`", '"monitored_barrier is only implemented for GLOO backend"', _DOCS),
    Rule("time", "calls after one whose time was up",
         '"will be aborted asynchronously and the process will crash"', _DOCS),
    Rule("objects", "objects, if no file of the script has `set_device(` or `device_id=`",
         '"it is the user\'s responsibility to ensure that this is set"', _DOCS),
)}  # fmt: skip
"""What NCCL rejects or does differently, by name."""
OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip
"""Functions that send pickled objects."""
TIMED_OUT = re.compile(r"time(?:d)? ?out|timeout|monitoredBarrier in", re.IGNORECASE)
"""Matches the error of a call whose time was up."""
_NAMES_A_DEVICE = ("set_device(", "device_id=")
_REDUCTIONS = ("BAND", "BOR", "BXOR")
_DTYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool", "float8_e4m3fn",
           "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")  # fmt: skip
"""Those in `ncclDataType` of `ProcessGroupNCCL.cpp`."""


class StrictOrderError(RuntimeError):
    """A call that NCCL rejects, or that does something else there."""

    __module__ = "builtins"  # so that tracebacks show the name alone

    def __init__(self, text: str, rule: str) -> None:
        super().__init__(text)
        self.rule = rule
        self.ranks: list[int] = []
        self.lines: list[str] = []
        """For a message: those of its send and its receive."""


def reject_call(rule: str, what: str, reason: str = "") -> StrictOrderError:
    """Return the error for a call, in one sentence with NCCL's reason and a source."""
    row = REJECTED[rule]
    return StrictOrderError(f"--strict-order: {what}; NCCL: {reason or row.nccl} ({row.source})", rule)


Key = Any
"""The pair of a message, which keeps it in order with messages of the same pair only; None for other calls."""


def must_wait(before: tuple[Key, object], after: tuple[Key, object]) -> bool:
    """Return whether a call of a rank may begin only after one that the rank made before.

    Args:
        before: key and batch of the earlier call; the batch is None outside of `batch_isend_irecv`.
        after: those of the later call.
    """
    if before[1] is not None and before[1] is after[1]:
        return False
    return before[0] is None or after[0] is None or before[0] == after[0]


def check_call(op: str, facts: Mapping[str, Any], tensors: Sequence[Any], timed_out: str = "") -> None:
    """Raise `StrictOrderError` for a call that NCCL rejects by itself, whatever other ranks do.

    Args:
        op: the operation.
        facts: those of the recorder.
        tensors: all of the call.
        timed_out: line of an earlier call of the process whose time was up; empty: there is none.
    """
    import torch

    if timed_out:
        raise reject_call("time", f"{op} comes after the call at {timed_out}, whose time was up")
    if facts.get("red") in _REDUCTIONS:
        own = REJECTED["reduction"].nccl.replace(_REDUCTIONS[0], facts["red"])
        raise reject_call("reduction", f"{op} reduces with {facts['red']}", own)
    if facts.get("peer") == -1:
        raise reject_call("any source", "recv names no source")
    if op == "monitored_barrier":
        raise reject_call("monitored barrier", "monitored_barrier needs gloo")
    if op == "all_gather_coalesced":
        raise reject_call("coalesced", "all_gather_coalesced needs gloo")
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise reject_call("dense", f"the tensors of {op} are on {' and '.join(devices)}; move them to one GPU")
    for tensor in tensors:
        dtype = str(tensor.dtype).partition(".")[2]
        if tensor.is_sparse:
            raise reject_call("dense", f"{op} has a sparse tensor; use to_dense()")
        if dtype not in _DTYPES:
            raise reject_call("dtype", f"{op} has a tensor of {dtype}; convert it to one of {', '.join(_DTYPES[:8])}")
        channels_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        if "peer" not in facts and not (tensor.is_contiguous() or channels_last):  # else NCCL only warns
            shape, stride = list(tensor.shape), list(tensor.stride())
            raise reject_call("layout", f"{op} has a tensor of shape {shape} with strides {stride}; use contiguous()")


def check_message(send: Mapping[str, Any], recv: Mapping[str, Any]) -> None:
    """Raise `StrictOrderError` if NCCL would deliver a message to a receive that does not expect it.

    Args:
        send: `rank`, `tag`, `count`, `dtype`, and `at` of the send.
        recv: those of the receive with the same number between the two ranks.
    """
    who = (send["rank"], send["at"], recv["rank"], recv["at"])
    met = "rank {} sends {{}} at {}, and the receive of rank {} at {} that comes next {{}}".format(*who)
    differences = (
        ("tag", "tag", "with tag {}", "has tag {}"),
        ("dtype", "count", "{}", "expects {}"),
        ("count", "count", "{} elements", "expects {}"),
    )
    for part, rule, sent, expected in differences:
        if send[part] != recv[part]:
            error = reject_call(rule, met.format(sent.format(send[part]), expected.format(recv[part])))
            error.ranks, error.lines = [send["rank"], recv["rank"]], [send["at"], recv["at"]]
            raise error


def names_device(texts: Sequence[str]) -> bool:
    """Return whether the sources of a script choose a device for objects."""
    return any(word in text for text in texts for word in _NAMES_A_DEVICE)
