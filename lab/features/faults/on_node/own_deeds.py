"""What a worker does to itself where a trigger holds it: raises, hangs, stands still, changes what its call brings."""

from __future__ import annotations

import builtins
import ctypes
import random
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

_FOR_GOOD_S = 30 * 86400.0


def do(deed: Mapping[str, Any], tensors: Sequence[Any], rank: int) -> None:
    """Do what a deed says, by its one key; nothing where it has none.

    Raises:
        BaseException: the deed is to raise that.
    """
    for name, said in deed.items():
        if name == "raise":
            raise getattr(builtins, said["error"])(said["message"])
        if name == "hang":
            hang(said.get("for_s") or _FOR_GOOD_S, with_lock=said["lock"])
        elif name == "pauses":
            begin_pauses(said, rank)
        elif name in ("nan", "flip"):
            _change(name, said, tensors, rank)


def hang(seconds: float, *, with_lock: bool) -> None:
    """Do nothing, in a wait that no signal ends; with the interpreter's lock, no other thread runs Python meanwhile."""
    libc = (ctypes.PyDLL if with_lock else ctypes.CDLL)(None)
    mutex = ctypes.create_string_buffer(128)  # zeros are a mutex that nobody has
    until = time.time() + seconds
    due = (ctypes.c_long * 2)(int(until), int(until % 1 * 1e9))
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_timedlock(mutex, due)  # its own thread has it


def begin_pauses(said: Mapping[str, Any], rank: int) -> threading.Thread:
    """Have the whole interpreter stand still again and again, as while a collector looks through a large heap."""
    draw = random.Random(f"{said['seed']}-{rank}")
    until = time.monotonic() + (said.get("for_s") or _FOR_GOOD_S)

    def pause() -> None:
        while time.monotonic() < until:
            time.sleep(draw.uniform(0.5, 1.5) * said["every_s"])
            hang(said["last_s"], with_lock=True)

    thread = threading.Thread(target=pause, name="pauses", daemon=True)
    thread.start()
    return thread


def _change(name: str, said: Mapping[str, Any], tensors: Sequence[Any], rank: int) -> None:
    import torch

    element = int(said["element"])
    try:
        for tensor in tensors:
            if element < tensor.numel():
                with torch.no_grad():
                    one = _element(tensor, element)
                    _make_nan(one) if name == "nan" else _flip(torch, one, int(said["bit"]))
                return
            element -= tensor.numel()
        raise ValueError("it brings fewer elements")
    except (ValueError, RuntimeError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        print(f"lab: element {said['element']} of rank {rank} was not changed: {why}", file=sys.stderr)


def _element(tensor: Any, index: int) -> Any:
    """One element, as a tensor without dimensions that shares its memory, wherever in memory it lies."""
    one = tensor.data  # whose version nobody watches
    for size in reversed(tensor.shape):
        index, place = divmod(index, size)
        one = one.select(-1, place)
    return one


def _make_nan(one: Any) -> None:
    if not (one.is_floating_point() or one.is_complex()):
        raise ValueError(f"no {str(one.dtype).partition('.')[2]} is NaN")
    one.fill_(float("nan"))


def _flip(torch: Any, one: Any, bit: int) -> None:
    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    whole = torch.view_as_real(one)[0] if one.is_complex() else one
    if bit >= whole.element_size() * 8:
        raise ValueError(f"a {str(one.dtype).partition('.')[2]} has no bit {bit}")
    bits = whole.view(widths[whole.element_size()])
    mask = 1 << bit
    bits.bitwise_xor_(mask if mask < 1 << (whole.element_size() * 8 - 1) or bits.dtype == torch.uint8 else -mask)
