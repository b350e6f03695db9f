"""Process groups of a script in this run: their backend, the store where they meet, and how they end.

torchrun sets `TORCHELASTIC_USE_AGENT_STORE=True`. PyTorch then assumes for every address in a script that another
process hosts the store. A script that starts processes of its own, at another address, then waits forever. So a
process of a run uses the run's store at the run's address, and the store of its own rank 0 at every other one.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from ..messages.agent import Named
from ..recorder.patching import call_before, replace_function, when_imported, wraps_function
from . import note

BACKEND_VARIABLE = "LAB_BACKEND"
"""Backend of the run; not set if the script and PyTorch choose it."""
INSTEAD_VARIABLE = "LAB_BACKEND_INSTEAD"
"""Set if that backend replaces every backend that the script names."""
REWRITE_VARIABLE = "LAB_REWRITE_ADDRESS"
"""Set if groups meet at the run's store, whatever address the script names."""
STORE_VARIABLE = "TORCHELASTIC_USE_AGENT_STORE"
HOSTED = "true"
"""Not `True`, for processes that a script starts and that have only the environment from the lab.

The Python half of PyTorch compares with `True`, so it has their rank 0 host the store. The C++ half accepts any
spelling. From PyTorch 2.7 on it lets rank 0 use an existing store at the port of the run."""
_BACKEND_POSITIONS = {"init_process_group": 0, "_new_group_with_tag": 2}
"""Position of the backend among the arguments of these functions of PyTorch; all others call these to make groups."""
_reported: set[str] = set()
_kept: list[Any] = []
"""Destroyed groups."""
_OWN_REFERENCES = 3
"""References of the list, the loop, and `getrefcount` itself."""


def backend_variables(backend: str | None, *, instead: bool) -> Mapping[str, str]:
    """Return the environment of a worker whose groups use a backend."""
    return {} if backend is None else {BACKEND_VARIABLE: backend, **({INSTEAD_VARIABLE: "1"} if instead else {})}


def choose_backend(rank: int, folder: str, note_socket: str) -> None:
    """From now on use the backend of the run for the process groups of this process and of its forks."""
    wanted, instead = os.environ.get(BACKEND_VARIABLE, ""), bool(os.environ.get(INSTEAD_VARIABLE))

    def with_backend(make: Any) -> Any:
        position = _BACKEND_POSITIONS[make.__name__]

        @wraps_function(make)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            requested = arguments[position] if len(arguments) > position else named.get("backend")
            # A group without a named backend has the backend of the default group.
            if not isinstance(requested or "", str) or (position and not requested):
                return make(*arguments, **named)
            asked = str(requested or "")
            kinds = [part.rpartition(":")[2].strip() for part in asked.lower().split(",")]  # `cpu:gloo,cuda:nccl`
            is_other = bool(asked) and wanted not in kinds
            if is_other:
                _report_named(
                    Named(rank, time.time(), named=asked, backend=wanted, instead=instead), folder, note_socket
                )
            backend = wanted if not asked or (instead and is_other) else asked
            if backend != asked and backend == "mpi" and not position:
                named = _without_ranks(named)
            if len(arguments) > position:
                arguments = (*arguments[:position], backend, *arguments[position + 1 :])
            else:
                named["backend"] = backend
            return make(*arguments, **named)

        return wrapper

    def watch(module: ModuleType) -> None:
        for name in _BACKEND_POSITIONS:
            replace_function(module, name, with_backend)

    if wanted:
        when_imported("torch.distributed.distributed_c10d", watch)


def _report_named(statement: Named, folder: str, note_socket: str) -> None:
    """Report once what a script named and where, because a script may make many groups."""
    if statement.named not in _reported:
        _reported.add(statement.named)
        import traceback

        at = note.line_in(folder, traceback.walk_stack(sys._getframe()))
        with suppress(OSError):  # the agent has ended
            note.send_statement(note_socket, statement._replace(at=at))


def _without_ranks(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without rank and world size: MPI sets these itself, and PyTorch warns about them."""
    own = {"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}
    return {name: value for name, value in named.items() if name not in own or str(value) != own[name]}


def use_run_store() -> None:
    """Have groups of this process and its forks that meet at the run's address use the run's store."""
    if os.environ.get(STORE_VARIABLE) != HOSTED or not os.environ.get("MASTER_PORT", "").isdecimal():
        return
    run_address, run_port = os.environ.get("MASTER_ADDR", ""), int(os.environ["MASTER_PORT"])

    def watch(module: ModuleType) -> None:
        def at_run(create: Any) -> Any:
            def create_store(
                hostname: str, port: int, rank: int, world_size: int, timeout: Any, *rest: Any, **options: Any
            ) -> Any:
                hosted = os.environ.get(STORE_VARIABLE) == HOSTED
                if hosted and port == run_port and _is_same_host(hostname, run_address):
                    return module.TCPStore(hostname, port, world_size, is_master=False, timeout=timeout)
                return create(hostname, port, rank, world_size, timeout, *rest, **options)

            return create_store

        replace_function(module, "_create_c10d_store", at_run)  # where torch lacks it, rank 0 finds the existing store

    when_imported("torch.distributed.rendezvous", watch)


def rewrite_address(rank: int, folder: str, note_socket: str) -> None:
    """Have this process, but none that it starts, meet others at the run's store, whatever address the script names.

    Keys of an earlier meeting stay in this store, so each meeting has a prefix of its own, as if its store were new.
    """
    if not os.environ.get(REWRITE_VARIABLE) or not os.environ.get("MASTER_PORT", "").isdecimal():
        return
    run_address, run_port, worker = os.environ.get("MASTER_ADDR", ""), int(os.environ["MASTER_PORT"]), os.getpid()
    meetings = itertools.count()

    def at_run(create: Any) -> Any:
        @wraps_function(create)
        def wrapper(hostname: str, port: int, *rest: Any, **options: Any) -> Any:
            if os.getpid() != worker:
                return create(hostname, port, *rest, **options)
            asked, used = f"tcp://{hostname}:{port}", f"tcp://{run_address}:{run_port}"
            if asked != used:
                _report_named(Named(rank, time.time(), named=asked, backend=used, instead=True), folder, note_socket)
            from torch.distributed import PrefixStore

            return PrefixStore(f"meeting {next(meetings)}", create(run_address, run_port, *rest, **options))

        return wrapper

    when_imported("torch.distributed.rendezvous", lambda one: replace_function(one, "_create_c10d_store", at_run))


def _is_same_host(one: str, other: str) -> bool:
    with suppress(OSError):
        return one == other or socket.gethostbyname(one) == socket.gethostbyname(other)
    return False


def refuse_unknown_ranks(module: ModuleType) -> None:
    """Make calls fail that name a rank outside of the world: gloo would wait for it until a time limit.

    PyTorch itself checks ranks of other groups only.

    Args:
        module: the module `torch.distributed.distributed_c10d`.
    """

    def check(group: Any, rank: int) -> None:
        if group is module.GroupMember.WORLD and not 0 <= rank < group.size():
            raise ValueError(f"there is no rank {rank}: the ranks are 0 to {group.size() - 1}")

    replace_function(module, "get_group_rank", call_before(check))


def keep_destroyed_groups() -> None:
    """From now on keep destroyed groups until others are destroyed: the end of a group can block a process forever.

    A thread of gloo needs the interpreter's lock to drop its last work. If a DDP object has the last reference to the
    group, its end waits for that thread, and keeps the lock. If Python has a reference too, the group's end releases
    the lock.
    """

    def watch(module: ModuleType) -> None:
        from .gloo_loops import keep_loops_awake

        def keeping(destroy: Any) -> Any:
            @functools.wraps(destroy)
            def wrapper(group: Any = None) -> None:
                everything = group is None or group == module.GroupMember.WORLD
                groups = list(module._world.pg_map) if everything else [group]
                with keep_loops_awake():
                    destroy(group)
                    # Groups without other references end now, as without the lab, so that their peers notice.
                    _kept[:] = [one for one in groups if sys.getrefcount(one) > _OWN_REFERENCES]
                    groups.clear()

            return wrapper

        replace_function(module, "destroy_process_group", keeping)

    when_imported("torch.distributed.distributed_c10d", watch)
