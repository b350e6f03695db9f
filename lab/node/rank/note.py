"""`lab.note`: a value that a script states, for the record and for what a scenario expects.

Works anywhere: inside a run the value goes to the agent; outside it is printed.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from ..messages import wire
from ..messages.agent import Note, Statement
from ..statement import problem_with

SOCKET_VARIABLE = "LAB_NOTE_SOCKET"
LIMIT_BYTES = 128 * 1024
"""Largest note as JSON: it has to fit into one datagram."""


_then: list[Callable[[str, Any], object]] = []
"""What is done once a note was sent."""


def then(action: Callable[[str, Any], object]) -> None:
    """Have something done with the name and value of each note that was sent to the agent."""
    _then.append(action)


def note(name: str, value: Any) -> None:
    """State a value under a name.

    Args:
        name: what it is; a scenario's `expect: notes:` refers to it.
        value: a number, string, list, dict, tensor or array of any shape; tensors become (nested) lists, complex
            numbers `[real, imaginary]`.

    Raises:
        ValueError: the value is larger than 128 KiB as JSON, nested more than 100 deep, or holds a number beyond 1e300.
        TypeError: the value, or something in it, has no JSON form.
    """
    plain = to_plain(value)
    problem = problem_with(plain)
    if problem:
        raise ValueError(f"note {name!r} {problem}")
    rank = int(os.environ.get("RANK", "0"))
    path = os.environ.get(SOCKET_VARIABLE)
    if path is None:
        print(f"note rank={rank} {name}={json.dumps(plain)}", flush=True)
        return
    send(path, Note(rank=rank, time=time.time(), name=str(name), value=plain))
    for action in _actions():
        action(str(name), plain)


def _actions() -> list[Callable[[str, Any], object]]:
    """What is done once a note was sent: where the lab is installed beside it, the worker has its own copy of this."""
    return getattr(sys.modules.get("labnode.node.rank.note"), "_then", _then)


def send(path: str, message: Statement) -> None:
    """Send one datagram to the agent of this node."""
    data = wire.encode(message)
    if len(data) > LIMIT_BYTES:
        raise ValueError(
            f"{wire.kind_of(message)} {getattr(message, 'name', '')!r} is {len(data):,} bytes as JSON, "
            f"at most {LIMIT_BYTES:,} are allowed: note a summary (shape, norm, a slice) instead"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(path)
        channel.send(data)


def to_plain(value: Any) -> Any:
    """A value as what JSON can say; floats that JSON cannot say become "nan", "inf" and "-inf".

    Raises:
        TypeError: there is no JSON form.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, str)):  # an enum, for instance
        return str(value) if isinstance(value, str) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, complex):
        return [to_plain(value.real), to_plain(value.imag)]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=repr)
    if hasattr(value, "detach"):  # a tensor; float() because bfloat16 and friends have no list form of their own
        value = value.detach().cpu().resolve_conj()
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    if type(value).__module__ == "torch":  # dtype, device, Size ...
        return str(value)
    raise TypeError(f"a note cannot hold {type(value).__name__}: use numbers, strings, lists, dicts or tensors")
