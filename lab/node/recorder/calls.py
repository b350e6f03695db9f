"""One call: its `begin` line, its `end` line, and the handle that sees it end. For the Python recorder."""

# ruff: noqa: D102 - methods that override PyTorch's are documented there

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from .gate import gate
from .journal import journal
from .source import source
from .streams import StreamTime
from .values import contents

_LONGEST_REASON = 300
_numbers = itertools.count(1)
Tensors = Sequence[torch.Tensor]


class Call:
    """A call that has begun; its begin line has been written.

    Without inputs it is one without tensors, without outputs one in place.
    """

    def __init__(self, facts: dict[str, Any], inputs: Tensors | None, outputs: Tensors | None) -> None:
        self.from_anybody = facts.get("peer") == -1
        self._number, self._open = next(_numbers), True
        self._results = (inputs if outputs is None else outputs) or ()
        self._stream = StreamTime.of((*(inputs or ()), *(outputs or ())))
        if inputs is not None:
            facts.update(_shapes("in", inputs), **self._contents("i", inputs))
        if outputs is not None:
            facts.update(_shapes("out", outputs))
        facts.update(source.place())
        if gate.closed:
            journal.add("hold", i=self._number, **facts)
            gate.wait(self._number)
        journal.add("begin", i=self._number, **facts)

    def end(self, error: BaseException | None = None, **facts: Any) -> None:
        """Write that the call is over, and why it failed; only the first time counts."""
        if not self._open:
            return
        self._open, now = False, time.monotonic_ns()
        if error is None:
            facts.update(self._contents("o", self._results))
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

    def _contents(self, side: str, tensors: Tensors) -> dict[str, Any]:
        """Values, or summaries of them; not of what is on a GPU, since reading waits for it."""
        return contents(side, tensors, journal.values) if self._stream is None else {}

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


class CompiledCall(Call):
    """A call of a group that is written in Python, whose lines the compiled recorder writes."""

    def __init__(self, native: Any, facts: dict[str, Any], inputs: Tensors | None, outputs: Tensors | None) -> None:
        self.from_anybody = facts.get("peer") == -1
        self._open, self._stream = True, None
        op, group, sequence = facts.pop("op"), facts.pop("g"), facts.pop("seq", 0)
        self._line = native.begin(op, group, sequence, inputs, outputs, json.dumps(facts)[1:-1])

    def end(self, error: BaseException | None = None, **facts: Any) -> None:
        """Write that the call is over, and why it failed; only the first time counts."""
        if self._open:
            self._open = False
            self._line.write(None if error is None else str(error) or type(error).__name__, facts.get("peer", -1))


class RecordedWork(Work):
    """The handle of a call whose backend does not tell when it is done: that is when it is waited for, or asked."""

    def __init__(self, work: Any, call: Call) -> None:
        super().__init__()
        self._plain, self._call = work, call
        self._ahead: Callable[[], Any] | None = None

    def wait_ahead(self) -> Any:
        """Wait now, on behalf of the next wait: some backends can be waited for but once."""
        try:
            result = self.wait()
        except Exception as error:
            failed = error
            self._ahead = lambda: _raise(failed)
            raise
        self._ahead = lambda: result
        return result

    def wait(self, *arguments: Any, **named: Any) -> Any:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead()
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


def _raise(error: Exception) -> Any:
    raise error


def _passed_on(name: str) -> Callable[..., Any]:
    return lambda self, *arguments, **named: getattr(self._plain, name)(*arguments, **named)


for _name in ("is_success", "exception", "result", "source_rank", "_source_rank", "synchronize", "get_future",
              "get_future_result", "block_current_stream", "_get_op_type", "_get_duration"):  # fmt: skip
    if hasattr(Work, _name):
        setattr(RecordedWork, _name, _passed_on(_name))
