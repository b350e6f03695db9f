"""Fault actions: an agent injects, undoes, or inspects a fault of its node when the lab requests it.

`ACTIONS` names the module of each action NAME. The module has the functions `apply_NAME(actions, parameters)`,
`undo_NAME`, and `inspect_NAME`; a missing function does nothing. Each may return plain data, or raise ValueError or
OSError with a sentence if it cannot act. A repeated action is no error. `in_force` in the answer of `inspect_NAME`
says whether the fault is in effect. The agent forks a process for each action in `SLOW`, because it has one thread
and many clients.

- `signal`: sends a signal to the worker of a rank, and inspects it.
- `loader`: kills a DataLoader worker process of a rank.
- `shutdown`: sends SIGTERM to the workers of a node; after a grace period the agent ends, and the node with it.
- `hog`: a process of the agent allocates the memory of its container, except for the requested remainder.
"""

from __future__ import annotations

import mmap
import os
import selectors
import signal
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from ....node import processes
from ....node.limits import read_cgroup
from ....node.messages import wire
from ....node.messages.agent import ActionRequest, ActionResult

if TYPE_CHECKING:
    from ....node.agent import Agent
    from ....node.noderun import NodeRun
    from ....node.rank_process import Worker

DEADLINE_S = 30
"""The kernel kills a process that has not finished its action by then."""
Parameters = Mapping[str, Any]
Answer = dict[str, Any]


class Actions:
    """The fault actions of one agent, see `lab.node.hooks`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.hogs: set[int] = set()
        """Processes that allocate memory; they outlast runs."""
        self.actions = {ActionRequest: self.handle}
        self._slow: dict[int, tuple[int, wire.Connection, ActionRequest]] = {}
        """By descriptor of the answer: the process that performs the action, its connection, and the request."""

    @property
    def run(self) -> NodeRun | None:
        """The run that uses the node now."""
        return self._agent.run

    @property
    def pids(self) -> set[int]:
        """The processes that perform actions."""
        return self.hogs | {pid for pid, *_ in self._slow.values()}

    def handle(self, connection: wire.Connection, asked: ActionRequest) -> None:
        """Perform a requested action, or fork a process for it, and answer."""
        package: Any = sys.modules[__package__]
        if asked.action.partition("_")[2] not in package.SLOW:
            self._answer(connection, self._perform(asked))
            return
        answer_r, answer_w = os.pipe2(os.O_CLOEXEC)

        def work() -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(DEADLINE_S)
            os.write(answer_w, wire.encode_message(self._perform(asked)))

        pid = processes.fork_helper(work, keep=(answer_w,))
        os.close(answer_w)
        self._slow[answer_r] = pid, connection, asked

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register the answers of forked processes with a selector."""
        for answer_r in self._slow:
            selector.register(answer_r, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Send the answers of forked processes that are ready."""
        for answer_r in self._slow.keys() & ready:
            pid, connection, asked = self._slow.pop(answer_r)
            with open(answer_r, "rb") as answer:
                done = wire.decode_message(answer.read())
            os.waitpid(pid, 0)
            killed = f"the process for this action was killed, or took longer than {DEADLINE_S} s"
            self._answer(connection, done if isinstance(done, ActionResult) else ActionResult(asked.id, {}, killed))

    def _perform(self, asked: ActionRequest) -> ActionResult:
        """Return the answer of the action, and its error."""
        package: Any = sys.modules[__package__]
        feature, _, function = asked.action.rpartition(".")
        module = package.ACTIONS.get(function.partition("_")[2])
        answer, problem = Answer(), ""
        if feature != "faults" or module is None:
            return ActionResult(asked.id, {}, f"the agent does not know the action {asked.action!r}")
        try:
            act = getattr(import_module(f".{module}", __package__), function, lambda *_: None)
            answer = act(self, asked.parameters) or {}
        except (ValueError, OSError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        return ActionResult(asked.id, answer, problem)

    def _answer(self, connection: wire.Connection, done: ActionResult) -> None:
        if connection in self._agent.connections:
            connection.send(done)


# -- signal


STATES = {"SIGKILL": "", "SIGSTOP": "T"}
"""Process state as the kernel reports it, whatever the script does with the signal; empty: it has ended."""


def apply_signal(actions: Actions, parameters: Parameters) -> Answer:
    """Send the signal."""
    worker = worker_of(actions, parameters["rank"])
    os.kill(worker.pid, signal.Signals[parameters["name"]])
    return {"pid": worker.pid}


def undo_signal(actions: Actions, parameters: Parameters) -> None:
    """Continue the worker, if it exists."""
    with suppress(ValueError, ProcessLookupError):
        os.kill(worker_of(actions, parameters["rank"]).pid, signal.SIGCONT)


def inspect_signal(actions: Actions, parameters: Parameters) -> Answer:
    """Return the process state as the kernel reports it, such as `S` or `T`; empty: it has ended."""
    state = ""
    with suppress(ValueError):
        state = _state(worker_of(actions, parameters["rank"]).pid)
    return {"in_force": STATES.get(parameters.get("name", ""), state) == state, "state": state or "ended"}


def worker_of(actions: Actions, rank: int) -> Worker:
    """Return the running worker of a rank.

    Raises:
        ValueError: No worker of the rank runs.
    """
    for worker in reversed(actions.run.workers if actions.run is not None else ()):
        if worker.rank == rank and worker.is_running:
            return worker
    raise ValueError(f"no worker of rank {rank} is running")


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:  # it may have ended
        return file.read()
    return b""


def _state(pid: int) -> str:
    """Return the letter of the state of a process; empty if it has ended."""
    return (processes.read_stat(pid) or [b""])[0].decode().strip("ZX")


# -- loader

_LOADER_NAME = b"pt_data_worker"
"""The name that torch gives them."""
_HELPERS = (b"resource_tracker", b"forkserver")
_GONE_S = 1.0


def apply_loader(actions: Actions, parameters: Parameters) -> Answer:
    """Kill one DataLoader worker process."""
    rank, number = parameters["rank"], parameters["worker"]
    if not (loaders := _loaders(worker_of(actions, rank).pid)):
        raise ValueError(f"rank {rank} has no DataLoader worker process")
    if number >= len(loaders):
        raise ValueError(f"rank {rank} has {len(loaders)} DataLoader worker processes, but no number {number}")
    os.kill(loaders[number], signal.SIGKILL)
    until = time.monotonic() + _GONE_S
    while _state(loaders[number]) and time.monotonic() < until:
        time.sleep(0.001)
    return {"pid": loaders[number]}


def inspect_loader(actions: Actions, parameters: Parameters) -> Answer:
    """Return the number of worker processes; `apply_loader` has seen the killed one end."""
    with suppress(ValueError):
        return {"in_force": True, "left": len(_loaders(worker_of(actions, parameters["rank"]).pid))}
    return {"in_force": True, "left": 0}


def _loaders(worker: int) -> list[int]:
    """Return the DataLoader processes below a worker in the order of their start; without names, all of Python."""

    def program(pid: int) -> bytes:
        """Return how it was started: a fork has the same command line, and another Python the same first word."""
        return _read(pid, "cmdline").partition(b"\0")[0]

    def started(pid: int) -> tuple[int, int]:
        """Return its start time in ticks, then its pid for equal times."""
        return int((processes.read_stat(pid)[19:20] or [b"0"])[0]), pid

    running = [pid for pid in processes.list_descendants(worker) if _state(pid)]
    named = [pid for pid in running if _read(pid, "comm").strip() == _LOADER_NAME]
    if not named:  # a torch that does not name them
        python = [pid for pid in running if program(pid) == program(worker)]
        named = [pid for pid in python if not any(word in _read(pid, "cmdline") for word in _HELPERS)]
    return sorted(named, key=started)


# -- shutdown


def apply_shutdown(actions: Actions, parameters: Parameters) -> None:
    """Begin the shutdown; forked processes do not inherit the timer."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, float(parameters["grace_s"]))
    for worker in actions.run.workers if actions.run is not None else ():
        if worker.is_running:
            processes.signal_session(worker.pid, signal.SIGTERM)


def undo_shutdown(actions: Actions, parameters: Parameters) -> None:
    """Cancel the shutdown; processes that have ended stay ended."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def inspect_shutdown(actions: Actions, parameters: Parameters) -> Answer:
    """Return whether the shutdown has begun."""
    return {"in_force": signal.getitimer(signal.ITIMER_REAL)[0] > 0}


# -- hog

_UNLIMITED_BYTES = 1 << 60
_BITE_BYTES = 32 << 20
_PAGE_BYTES = mmap.PAGESIZE
_PAUSE_S = 0.01
_SLACK_BYTES = 8 << 20
"""Memory that other processes free is allocated after this time."""


def apply_hog(actions: Actions, parameters: Parameters) -> None:
    """Begin to allocate memory; `leave_bytes` stays free."""
    if left_bytes() is None:
        raise ValueError("its container has no memory limit, so there is nothing to use up")
    undo_hog(actions, parameters)
    actions.hogs.add(processes.fork_helper(lambda: _eat(parameters["leave_bytes"])))


def undo_hog(actions: Actions, parameters: Parameters) -> None:
    """Free the memory."""
    for pid in actions.hogs:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    actions.hogs.clear()


def inspect_hog(actions: Actions, parameters: Parameters) -> Answer:
    """Return whether a process allocates memory and the free memory is at the requested value, and how much is free."""
    left = left_bytes() or 0
    return {"in_force": bool(actions.hogs) and left < parameters["leave_bytes"] + _SLACK_BYTES, "left_bytes": left}


def left_bytes() -> int | None:
    """Return the free memory of the container, including file caches; None: it has no limit."""
    limit = read_cgroup("memory.max", "memory/memory.limit_in_bytes")
    if not 0 < limit < _UNLIMITED_BYTES:
        return None
    used = read_cgroup("memory.current", "memory/memory.usage_in_bytes")
    cached = (read_cgroup("memory.stat", "memory/memory.stat", key=key) for key in ("inactive_file", "active_file"))
    return limit - used + sum(cached)


def _eat(leave_bytes: int) -> NoReturn:
    """Allocate all memory beyond the part that stays free, until killed."""
    eaten = []
    while True:
        if (bite := min((left_bytes() or 0) - leave_bytes, _BITE_BYTES) // _PAGE_BYTES * _PAGE_BYTES) <= 0:
            time.sleep(_PAUSE_S)
            continue
        eaten.append(mmap.mmap(-1, bite, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for page in range(0, bite, _PAGE_BYTES):
            eaten[-1][page] = 1
