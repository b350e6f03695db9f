"""What a call or a group of dumps costs a record: every view reads it again, so its size has a limit.

A unit is about 5 µs of an import: an item of a list in the trace, or a rank that a step waits for.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.features.dumps.dump import Entry
from lab.operations import Cut, Who, operation

MOST_APART = 64
"""The most tensors that a trace lists for each rank. A larger group leaves them out, because all are alike."""
_CALL, _GROUP, _CHARACTERS = 16, 4, 8


def cost_of_call(entry: Entry, members: int) -> int:
    """The cost of a call in a group of so many ranks."""
    items = sum(1 + len(tensor.sizes) for tensors in (entry.inputs, entry.outputs) for tensor in tensors)
    op = operation(entry.op)
    apart = op.cut is Cut.TENSORS or (op.giver is Who.ALL and op.cut is Cut.WHOLE and not (op.reduces or op.joined))
    if apart and members <= MOST_APART:
        items *= members
    text = len(entry.op) + len(entry.group) + len(entry.file) + len(entry.function)
    return _CALL + items + text // _CHARACTERS


def cost_of_group(ranks_of: Mapping[int, tuple[int, ...]]) -> int:
    """Compute the cost of a group with its lists of members by rank; a list that ranks share counts once."""
    shared = {id(ranks): len(ranks) for ranks in ranks_of.values()}
    return _GROUP + (sum(shared.values()) if len(shared) == 1 else sum(map(len, ranks_of.values())))
