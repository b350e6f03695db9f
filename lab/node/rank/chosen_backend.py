"""Which backend the process groups of a script get: the run's, where the script names none, or whatever it names."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any

from ..messages.agent import Named
from . import note

VARIABLE = "LAB_BACKEND"
"""What carries the bytes of a run; not set where that is left to the script and to PyTorch."""
INSTEAD_VARIABLE = "LAB_BACKEND_INSTEAD"
"""Set where it does so instead of every backend that the script names."""
_PLACE = {"init_process_group": 0, "_new_group_with_tag": 2}
"""At which place of their arguments these functions of PyTorch take the backend; all others make groups by them."""
_told: set[str] = set()


def variables(backend: str | None, *, instead: bool) -> Mapping[str, str]:
    """What says so to a worker."""
    if backend is None:
        return {}
    return {VARIABLE: backend, **({INSTEAD_VARIABLE: "1"} if instead else {})}


def choose(rank: int, folder: str, note_socket: str) -> None:
    """From now on give the process groups of this process, and of its forks, the backend of the run."""
    from ..recorder.imports import when_imported

    wanted = os.environ.get(VARIABLE)
    if wanted:
        give = functools.partial(_give, wanted, bool(os.environ.get(INSTEAD_VARIABLE)), rank, folder, note_socket)
        when_imported("torch.distributed.distributed_c10d", give)


def chosen(named: str | None, wanted: str, *, instead: bool) -> str:
    """The backend that is taken where a script names this one, or none."""
    return wanted if named is None or (instead and not is_among(wanted, named)) else named


def is_among(wanted: str, named: str) -> bool:
    """Whether a name stands for this backend; it may be one for each kind of device, `cpu:gloo,cuda:nccl`."""
    return wanted in (part.rpartition(":")[2].strip() for part in named.lower().split(","))


def _give(wanted: str, instead: bool, rank: int, folder: str, note_socket: str, module: ModuleType) -> None:
    from ..recorder import marks

    def taking(make: Any) -> Any:
        place = _PLACE[make.__name__]

        @functools.wraps(make)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            given = arguments[place] if len(arguments) > place else named.get("backend")
            if given is not None and not isinstance(given, str):
                return make(*arguments, **named)
            if not given and place:  # a group for which nothing is named has the backend of the default one
                return make(*arguments, **named)
            taken = chosen(given or None, wanted, instead=instead)
            if given and not is_among(wanted, given):
                _tell(Named(rank, time.time(), given, wanted, instead, _line(folder)), note_socket)
            if taken != given and taken == "mpi" and not place:
                named = _without_places(named)
            if len(arguments) > place:
                arguments = (*arguments[:place], taken, *arguments[place + 1 :])
            else:
                named["backend"] = taken
            return make(*arguments, **named)

        return marks.unseen(wrapper)

    users = (module, *map(sys.modules.get, ("torch.distributed", "torch.distributed.device_mesh")))
    marks.replace(users, "init_process_group", taking)
    marks.replace((module,), "_new_group_with_tag", taking)


def _without_places(named: Mapping[str, Any]) -> dict[str, Any]:
    """Without the rank and the size that MPI gives by itself: PyTorch would warn of what nobody asked for."""
    given = {"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}
    return {name: value for name, value in named.items() if name not in given or str(value) != given[name]}


def _tell(told: Named, note_socket: str) -> None:
    """Say so once: a script may make many groups."""
    if told.named not in _told:
        _told.add(told.named)
        with suppress(OSError):  # whoever runs the script is gone
            note.send(note_socket, told)


def _line(folder: str) -> str:
    """The innermost line of the script's folder, as `file:line`; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    inside = os.path.join(folder, "")
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(inside):
            return f"{path.removeprefix(inside)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
