"""Make calls obey a strict transport: wait for receives, keep the order, reject what NCCL rejects.

A call waits for earlier calls of the same thread, as `rules.must_wait` says. If it cannot begin at once and returns a
handle, a thread of its own makes it later. Its `begin` line is written when it takes effect, so the diagnosis of a
hang finds who waits for whom. Ranks meet in the group's store: a receive announces itself there, and a send waits for
that; in a collective with a root, each rank counts itself there and waits for all.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import ModuleType
from typing import Any

from ....node.recorder import install as recorder
from ....node.recorder.journal import journal, source
from ....node.recorder.patching import call_before, call_instead, patch_module, replace_function, wraps_function
from . import rules

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.005
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_DEFAULT_TIMEOUT_S = 1800.0
_PATIENCE = timedelta(seconds=10)


def is_strict() -> bool:
    """Return whether calls of this process obey a strict transport."""
    return os.environ.get(rules.VARIABLE, "0") not in ("", "0")


def use_python(_: Any = None) -> None:
    """Record the calls of this process in Python."""
    if is_strict():
        recorder.use_python()


@wraps_function(use_python)
def _wait_for(is_ready: Callable[[], bool], limit_s: float, what: str) -> None:
    """Poll until a condition holds. On stacks this is the recorder's, so that the rank counts as communicating."""
    until, pause_s = time.monotonic() + limit_s, _FIRST_PAUSE_S
    while not is_ready():
        if time.monotonic() > until:
            raise RuntimeError(f"Timed out after {limit_s:g} s: {what}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


@wraps_function(use_python)
def _wait_until_over(call: _Call, limit_s: float = -1) -> None:
    """Wait until a call of this process has ended; on stacks this is the recorder's, too."""
    if not call.lock.acquire(timeout=limit_s):
        raise RuntimeError(f"Timed out after {limit_s:g} s: the call has not ended")
    call.lock.release()


class _Order:
    """The calls of this process that have not completed."""

    def __init__(self) -> None:
        self.world = ""
        """Name of the current world, on which its ranks agreed in the world's own store."""
        self.store: Any = None
        """Where its ranks meet: the store of the run, which lasts; else that of the world."""
        self.address = ("", "")
        """Host and port of the run's store, before the script changes its variables."""
        self._worlds: Counter[str] = Counter()
        self.local = threading.local()
        self.timed_out = ""
        """Line of a call whose time was up."""
        self.reset()

    def reset(self) -> None:
        """Forget all calls: this is a fork."""
        self._open: dict[int, list[_Call]] = {}
        self._numbers: defaultdict[tuple[Any, ...], itertools.count[int]] = defaultdict(itertools.count)

    def begin_world(self, module: ModuleType, group: Any) -> None:
        """Name a new world: its keys in the store differ from those of all others."""
        self._numbers.clear()
        store = base = module._world.pg_map[group][1]
        while hasattr(base, "underlying_store"):
            base = base.underlying_store
        where = " ".join(str(getattr(base, part, "")) for part in ("host", "port", "path"))
        self._worlds[where] += 1
        key = f"strict-order/world/{self._worlds[where]}"
        try:
            if group.rank() == 0:
                store.set(key, f"{os.environ.get('RANK', '0')}-{os.getpid()}-{sum(self._worlds.values())}")
            self.world = store.get(key).decode()
        except RuntimeError:  # MPI's store keeps nothing: calls keep their order, but do not meet
            self.store = None
        else:
            self.store = self._connect() or store

    def _connect(self) -> Any:
        from torch._C._distributed_c10d import TCPStore

        host, port = self.address
        if not (host and port.isdecimal()):
            return None
        try:
            return TCPStore(host, int(port), is_master=False, timeout=_PATIENCE)
        except (RuntimeError, ValueError):  # no one hosts it
            return None

    def number(self, *key: Any) -> int:
        """Return how often the key was used before, in this world."""
        return next(self._numbers[key])

    def add(self, call: _Call) -> list[_Call]:
        """Add a call of this thread; return the open calls that it has to wait for."""
        mine = [one for one in self._open.get(threading.get_ident(), ()) if not one.is_over]
        self._open[threading.get_ident()] = [*mine, call]
        return [one for one in mine if rules.must_wait(one.position, call.position)]

    def list_open(self) -> list[_Call]:
        """Return the calls that have not completed."""
        return [one for calls in [*self._open.values()] for one in calls if not one.is_over]


_order = _Order()
_held = itertools.count()
"""Numbers of calls that had to wait for earlier ones."""
os.register_at_fork(after_in_child=_order.reset)


class _Call:
    """One call of this process."""

    def __init__(self, op: str, group: Any, facts: dict[str, Any], inputs: Any, outputs: Any, make: Any) -> None:
        self._op, self._group, self._make = op, group, make
        self._tensors, self._facts = (inputs, outputs), facts
        self._recorded: Any = None
        self.is_over = False
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        """Free once the call is over."""
        self.lock.acquire()
        peer = facts.get("peer")
        batch = getattr(_order.local, "batch", None)
        self.position = (None if peer is None or batch is not None else _find_rank(group, peer)), batch
        self.versions = _read_versions(inputs) if op == "send" else []
        self._key = f"strict-order/{_order.world}/{group.group_name}/"
        if peer is not None:
            ends = (group.rank(), peer) if op == "send" else (peer, group.rank())
            self._key += f"{ends[0]}>{ends[1]}/{_order.number(group.group_name, op, *ends)}"
        else:
            self._key += str(_order.number(group.group_name))

    @property
    def needs_thread(self) -> bool:
        """Whether it would block the script, which gets a handle."""
        return self._facts.get("peer") is not None or self._op in _ROOTED

    def record(self) -> None:
        """Write the begin line, unless it is written already."""
        from ....node.recorder.python_group import Call

        if journal.on and self._recorded is None:
            self._recorded = Call(self._facts, *self._tensors)

    def begin(self) -> Any:
        """Write the begin line, meet the other ranks, and make the call; return the backend's handle."""
        self.record()
        self._meet(_order.store)
        return self._make()

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise

    def run(self, before: list[_Call]) -> Any:
        """Make the call after others, and wait until it completes; return its handle."""
        with self._ends_on_error():
            self._wait_behind([one for one in before if not one.is_over])
            if (work := self.begin()) is not None:
                work.wait()
        self.end()
        return work

    def _wait_behind(self, before: list[_Call]) -> None:
        if before:
            op, line, other = before[0]._op, before[0]._facts.get("at", ""), self._facts.get("at", "")
            number = next(_held)
            journal.add("held", e=0, n=number, op=self._op, at=other, behind=op, line=line)
            for one in before:
                _wait_until_over(one)
            if (error := next((one.error for one in before if one.error is not None), None)) is not None:
                raise error  # a communicator that failed begins nothing
            journal.add("held", e=1, n=number)

    def run_now(self) -> Any:
        """Make the call; return the backend's own handle, or one that a thread completes."""
        with self._ends_on_error():
            work = self.begin()
        if work is None:
            self.end()
            return None
        try:
            work.get_future().add_done_callback(self._done)
        except RuntimeError:  # the backend has no futures
            return self._run_in_thread(lambda: self._wait_and_end(work))
        return work

    def run_later(self, before: list[_Call]) -> Any:
        """Make the call in a thread; return a handle for it."""
        if not before:
            self.record()  # in the order of the script
        return self._run_in_thread(lambda: self.run(before))

    def _done(self, future: Any) -> None:
        with suppress(Exception), self._ends_on_error():
            future.value()
        self.end()

    def _wait_and_end(self, work: Any) -> None:
        with self._ends_on_error():
            work.wait()
        self.end()

    def _run_in_thread(self, action: Callable[[], object]) -> Any:
        import torch
        from torch._C import _distributed_c10d as c10d

        future: Any = torch.futures.Future()
        inputs, outputs = self._tensors
        result = list(inputs if outputs is None else outputs) if inputs is not None else []
        modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

        def run() -> None:
            try:
                with torch.inference_mode(modes[0]), torch.set_grad_enabled(modes[1]):
                    action()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="lab-strict-order", daemon=True).start()
        if self._facts.get("peer") is not None:
            return _message_class()(future, self)
        return c10d._create_work_from_future(future)  # type: ignore[attr-defined]

    def end(self, error: BaseException | None = None) -> None:
        """Write the end line, and let later calls begin; only the first call has an effect."""
        if self.is_over:
            return
        if isinstance(error, rules.StrictOrderError):
            _record_rejection(error, self._facts.get("at", ""))
        elif rules.TIMED_OUT.search(str(error)):
            _order.timed_out = self._facts.get("at", "?")
        if self._recorded is not None:
            self._recorded.end(error) if error is not None else self._recorded.finish()
        self.error, self.is_over = error, True
        self.lock.release()

    def reject(self, error: Exception) -> None:
        """Write the call with an error that it never got beyond."""
        self.record()
        self.end(error)

    # -- meeting other ranks

    def _limit_s(self) -> float:
        import torch

        try:
            return float(self._group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
        except (AttributeError, RuntimeError):
            return _DEFAULT_TIMEOUT_S

    def _meet(self, store: Any) -> None:
        key = self._key
        if store is None:  # the script made the group without init_process_group
            return
        if self._op == "recv":
            store.set(key, json.dumps(self._describe()))
        elif self._op == "send":
            _wait_for(lambda: store.check([key]), self._limit_s(), "no rank called the receive of this send")
            rules.check_message(self._describe(), json.loads(store.get(key)))
            store.delete_key(key)
        elif self._op in _ROOTED:  # others wait for all ranks themselves, and the store may be out of reach
            if store.add(key, 1) == self._group.size():
                store.set(f"{key}/all", "")
            why = f"a rank of the group did not call {self._op}"
            _wait_for(lambda: store.check([f"{key}/all"]), self._limit_s(), why)

    def refuse_changes(self) -> None:
        """Raise an error if the script has changed a tensor of a send."""
        if self.versions and self.versions != _read_versions(self._tensors[0]):
            line = self._facts.get("at", "?")
            error = rules.reject_call("changed", f"the tensor of isend at {line} changed before its wait()")
            _record_rejection(error, line)
            raise error

    def _describe(self) -> dict[str, Any]:
        tensors = [*self._tensors[0], *self._tensors[1]]
        facts = {"rank": int(os.environ.get("RANK", "0")), "tag": self._facts["tag"], "at": self._facts.get("at", "?")}
        dtype = str(tensors[0].dtype).partition(".")[2] if tensors else ""
        return {**facts, "dtype": dtype, "count": sum(tensor.numel() for tensor in tensors)}


def _record_rejection(error: rules.StrictOrderError, line: str) -> None:
    journal.add("rejected", rule=error.rule, ranks=error.ranks, lines=error.lines or [line])


def _read_versions(tensors: Iterable[Any]) -> list[int]:
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:  # tensors of the inference mode have none
        return []


def _find_rank(group: Any, peer: int) -> int:
    """Return the global rank of a member of a group: messages of two ranks have one order in all groups."""
    ranks = sys.modules["torch.distributed.distributed_c10d"]._world.pg_group_ranks.get(group, {})
    return next((rank for rank, member in ranks.items() if member == peer), peer)


@functools.cache
def _message_class() -> Any:
    from torch._C._distributed_c10d import Work

    class MessageWork(Work):
        """The handle of a message that a thread sends or receives."""

        def __init__(self, future: Any, call: _Call) -> None:
            super().__init__()
            self._future, self._call = future, call

        def wait(self, timeout: Any = None) -> bool:
            limit_s = timeout.total_seconds() if timeout is not None else 0
            self._call.refuse_changes()
            _wait_until_over(self._call, limit_s if limit_s > 0 else -1)
            self._future.wait()
            return True

        def is_completed(self) -> bool:
            return bool(self._future.done())

        def is_success(self) -> bool:
            return bool(self._future.done()) and self.exception() is None

        def exception(self) -> Any:
            try:
                self._future.value()
            except Exception as error:
                return error
            return None

        def result(self) -> Any:
            return self._future.value()

        def get_future(self) -> Any:
            return self._future

    return MessageWork


# -- the calls of the script


def order_calls(_: Any) -> None:
    """Replace the methods of recorded groups by ones that obey the order, before other features change them."""
    if not is_strict():
        return
    from torch._C._distributed_c10d import ProcessGroup

    from ....node.recorder.python_group import OPERATIONS, RecordedGroup

    for op, methods in OPERATIONS.items():
        for name in methods:
            if hasattr(ProcessGroup, name):
                setattr(RecordedGroup, name, _ordered(op, getattr(ProcessGroup, name)))


def _ordered(op: str, plain: Any) -> Any:
    from ....node.recorder.python_group import describe_call

    @functools.wraps(plain)
    def method(group: Any, *arguments: Any, **named: Any) -> Any:
        try:
            facts, inputs, outputs = describe_call(op, (*arguments, *named.values()))
        except Exception as error:  # unexpected arguments
            journal.cut(f"the recorder cannot record {op}: {type(error).__name__}: {error}")
            return plain(group._plain, *arguments, **named)
        message, waits = "peer" in facts, facts.get("async") is False
        number = {} if message else {"seq": next(vars(group).setdefault("_recorded_sequence", itertools.count(1)))}
        late = {} if message or waits else {"late": 1}
        facts = {"op": op, "g": group.group_name, **number, **facts, **late, **source.locate()}
        call = _Call(op, group, facts, inputs, outputs, functools.partial(plain, group._plain, *arguments, **named))
        try:
            rules.check_call(op, facts, [*(inputs or ()), *(outputs or ())], _order.timed_out)
        except rules.StrictOrderError as error:
            call.reject(error)
            raise
        before = _order.add(call)
        if waits:
            return call.run(before)
        return call.run_later(before) if before or call.needs_thread else call.run_now()

    return method


def watch_module() -> None:
    """Watch what begins worlds, batches of messages, and objects."""
    if is_strict():
        _order.address = (os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
        patch_module("torch.distributed.distributed_c10d", _watch)


def _watch(module: ModuleType) -> None:
    def begin_world(init: Any, *arguments: Any, **named: Any) -> Any:
        result = init(*arguments, **named)
        _order.begin_world(module, module._world.default_pg)
        return result

    replace_function(module, "init_process_group", call_instead(begin_world))
    replace_function(module, "batch_isend_irecv", call_instead(_in_batch))
    for name in rules.OBJECTS:
        replace_function(module, name, call_before(functools.partial(_check_objects, name)))


def _in_batch(function: Any, *arguments: Any, **named: Any) -> Any:
    _order.local.batch = object()
    try:
        return function(*arguments, **named)
    finally:
        _order.local.batch = None


def _check_objects(name: str, *_: Any, **named: Any) -> None:
    """Reject objects of the script itself; those of PyTorch's own modules are on the device of their module."""
    location = source.locate()
    if named.get("device") is not None or location.get("via", name) != name or not location:
        return
    if not rules.names_device(_read_sources()):
        error = rules.reject_call("objects", f"{name} sends through the current GPU, which the script never sets")
        _record_rejection(error, location["at"])
        raise error


def _read_sources() -> list[str]:
    """Return the texts of the modules in the script's folder."""
    texts, paths = list[str](), {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    for path in paths:
        if path and path.startswith(source.folder) and not path.startswith(source.hidden):
            with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
    return texts


def finish_calls() -> None:
    """Wait for the calls that are still open, because the group, or the process without an error, is about to end."""
    frame, code = sys._getframe(), 0
    while frame.f_back is not None and frame.f_code.co_name != "_leave":  # of the worker, which knows the exit code
        frame = frame.f_back
        code = frame.f_locals.get("code", 0) if frame.f_code.co_name == "_leave" else 0
    if is_strict() and not code:
        for call in _order.list_open():
            _wait_until_over(call)
