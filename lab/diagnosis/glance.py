"""Whether the traces of a run in which nothing failed are worth reading: a glance at their bytes, in place of a look.

Reading traces takes longer than a short run has time for, and nearly all that can be wrong in silence leaves one of
five signs: handles of the script's own, operations that fill several tensors, NaN, numbers too large to be written
without an exponent, replicas that are said to be different.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lab.record.record_files import list_folder, read_file

_MOST_BYTES = 1 << 20
_HANDLES = rb'"async":true(?![^\n]*"via":"(?:DistributedDataParallel|backward))'
_SEVERAL_TENSORS = rb'"op":"(?:all_gather|gather|all_to_all)"'
_NAN = rb'"nan"'
_HUGE = rb"\de\+\d"
_SIGNS = re.compile(b"|".join((_HANDLES, _SEVERAL_TENSORS, _NAN, _HUGE)))
_REPLICAS = re.compile(rb'"d":(\d+),(?:[^\n]*?"params":(\[.*?\]),"buckets"|"steps":(\d+),"norms":(\[.*?\]))')
_WEIGHTS = re.compile(rb'"o":(\d+),"steps":(\d+),[^\n]*?"grads":(\[.*?\]),"norms":(\[.*?\])')


def worth_reading(folder: Path) -> bool:
    """Whether the traces in a folder, if they are not too long for a verdict to wait, show a sign of anything wrong."""
    sizes = list_folder(folder.parent, folder.name)
    if sum(sizes.values()) > _MOST_BYTES:
        return False
    traces = list[bytes]()
    for name in sizes:
        with suppress(OSError):
            traces.append(read_file(folder.parent, f"{folder.name}/{name}", _MOST_BYTES))
    return any(map(_SIGNS.search, traces)) or _differ(traces)


def _differ(traces: Iterable[bytes]) -> bool:
    """Whether parameters of a module, or their norms after a step, or what the same gradients made of them, differ."""
    known: dict[tuple[bytes, ...], bytes] = {}
    for trace in traces:
        for number, parameters, steps, norms in _REPLICAS.findall(trace):
            if known.setdefault((number, steps), parameters or norms) != (parameters or norms):
                return True
        for *step, norms in _WEIGHTS.findall(trace):
            if known.setdefault((*step, b""), norms) != norms:
                return True
    return False
