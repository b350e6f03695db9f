"""Traffic between ranks: bytes from each rank to each rank, and the bandwidth of each operation.

**Logical bytes.** The lab cannot see the algorithm of a backend (ring, tree, halving and doubling). It counts the
bytes of the direct algorithm, in which every byte goes straight from the rank that has it to the rank that
needs it. The total that each rank sends is then the size of the operation times nccl-tests' bus bandwidth factor. It
is not the number of bytes on the wire, which also has headers, retransmissions, and detours of the algorithm.

**Sizes and factors** are those of nccl-tests, so you can compare figures with published ones:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; those of gather, scatter, all-to-all and
send/receive, which that page does not derive, are in `src/gather.cu`, `scatter.cu`, `alltoall.cu`, `sendrecv.cu`.

| operation | size S of one of n ranks' call, bytes | rank i sends rank j | factor |
|---|---|---|---|
| all_reduce | its tensor | 2 S / n | 2 (n-1) / n |
| all_gather | its output, of all ranks | the input of i | (n-1) / n |
| reduce_scatter | its input, for all ranks | the part for j | (n-1) / n |
| all_to_all | its input, for all ranks | the part for j | (n-1) / n |
| broadcast | the tensor | S, if i is the source | 1 |
| reduce | the tensor | S, if j is the destination | 1 |
| scatter | the input of the source, for all ranks | the part for j, if i is the source | (n-1) / n |
| gather | the output of the destination, of all ranks | the input of i, if j is the destination | (n-1) / n |
| send | the message | S | 1 |
| barrier | 0 | 0 | none |
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import NamedTuple

from lab.features.values.expected import output_parts
from lab.operations import Cut, Operation, Who, get_operation
from lab.report.style import group_neighbours
from lab.trace.model import Call
from lab.trace.steps import Step

_MOST_PAIRS = 1_500_000
"""Most pairs of ranks over all different steps: a second or two. A step of 1,000 ranks has a million."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """Properties of the steps of one operation."""

    op: str
    """As in `Step.op`; a message is a `send`."""
    size: int | None
    """Bytes of each of them, as nccl-tests counts (S); None where the row holds several sizes."""
    ranks: int | None
    """Ranks of each of them; None if that differs."""
    count: int
    """Steps, finished or not."""
    finished: int
    """Steps whose time is known: every rank entered and left, without an error."""
    bytes: int
    """Sum of S over all steps."""
    sent: int | None
    """Logical bytes that all ranks together sent: the sum of `matrix` over these steps; None if it has none."""
    median_s: float | None
    """Seconds from the entry of the last rank to the exit of the last; None if no step finished."""
    total_s: float
    """Sum of those seconds over the finished steps."""
    waited_s: float
    """Seconds that all ranks together waited inside, before every rank that they needed had entered."""
    algbw: float | None
    """Algorithm bandwidth, bytes per second: S divided by the time, over all finished steps."""
    busbw: float | None
    """Bus bandwidth, bytes per second: algorithm bandwidth times the factor of the operation."""


def build_matrix(steps: Sequence[Step], world_size: int) -> list[list[int]] | None:
    """Logical bytes that rank i (row) sent rank j (column), as integers; None if there are too many pairs.

    A part counts if its receiver left the call without an error. Data that a rank keeps is no traffic: the
    diagonal has only messages of a rank to itself. Ranks beyond the world size are left out.
    """
    if world_size**2 > _MOST_PAIRS or (sums := _sum_flows(steps)) is None:
        return None
    return [[round(sums.get((i, j), 0.0)) for j in range(world_size)] for i in range(world_size)]


def matrix_view(steps: Sequence[Step], ranks: Sequence[int]) -> list[tuple[int | str, list[int]]] | None:
    """Return a row of bytes for each sender, one for each receiver; empty without traffic, None if not counted.

    With many ranks, neighbours share a row and a column, which are named `0-7`.
    """
    blocks = group_neighbours(ranks)
    names = [block[0] if len(block) == 1 else f"{block[0]}-{block[-1]}" for block in blocks]
    if (sent := build_matrix(steps, max(ranks, default=-1) + 1)) is None:
        return None
    rows = [[sum(sent[i][j] for i in block for j in others) for others in blocks] for block in blocks]
    return list(zip(names, rows, strict=True)) if any(map(any, rows)) else []


def _sum_flows(steps: Iterable[Step]) -> dict[tuple[int, int], float] | None:
    """Return logical bytes by sender and receiver; None if there are too many pairs."""
    alike = _alike(steps)
    if sum(1 if step.message else len(step.calls) ** 2 for step, _ in alike) > _MOST_PAIRS:
        return None
    sums: dict[tuple[int, int], float] = defaultdict(float)
    for step, times in alike:
        for sender, receiver, size in _flows(step):
            sums[sender, receiver] += times * size
    return sums


def _alike(steps: Iterable[Step]) -> Collection[tuple[Step, int]]:
    """Return one step of each kind, and how many there are: training repeats the same steps."""
    kinds: dict[Hashable, tuple[Step, int]] = {}
    for step in steps:
        calls = (
            (
                *(rank, call.op, call.bytes_in, call.bytes_out, call.state, call.splits, call.peer, call.root),
                *(buffer.count for buffers in (call.inputs, call.outputs) if len(buffers) > 1 for buffer in buffers),
            )
            for rank, call in sorted(step.calls.items())
        )
        kind = (step.message, step.group.ranks, *calls)
        kinds[kind] = step, kinds.get(kind, (step, 0))[1] + 1
    return kinds.values()


def _flows(step: Step) -> Iterator[tuple[int, int, float]]:
    """Return sender, receiver, and logical bytes of every part of a step that reached its receiver."""
    if step.message:
        receiver = step.calls.get(step.destination) if step.destination is not None else None
        # A message of a rank to itself has no recorded receive, so its send counts.
        if receiver is not None and step.source is not None and receiver.state == "completed":
            yield step.source, receiver.rank, step.calls.get(step.source, receiver).bytes
    elif len({call.op for call in step.calls.values()}) == 1:  # otherwise the bytes have no meaning
        for call in step.calls.values():
            if call.state == "completed":
                yield from _received(step, call)


def _received(step: Step, call: Call) -> Iterator[tuple[int, int, float]]:
    """Return how many bytes of a rank's output come from each rank; all elements have the same width."""
    counts: dict[int, int] = defaultdict(int)
    for part in chain.from_iterable(output_parts(step, call)):
        for source in part.sources:
            counts[source.rank] += part.count
    elements = sum(buffer.count for buffer in call.outputs)
    # If all ranks get the reduction, each rank reduces a part and then sends it to all.
    times, parts = (2, len(step.group.ranks)) if call.operation.reduces_for_all else (1, 1)
    for sender, count in counts.items():
        if count and sender != call.rank and sender in step.calls:
            yield sender, call.rank, times * call.bytes_out * count / (parts * elements)


def size_of(step: Step) -> int:
    """Return the bytes of a step as nccl-tests counts them (S): the largest input or output of a rank."""
    return max(call.bytes for call in step.calls.values())


def bus_factor(op: Operation, ranks: int) -> float | None:
    """Return nccl-tests' factor of the algorithm bandwidth; None if no data moves or the factor is unknown."""
    if not op.moves_data or op.cut is Cut.OTHER:
        return None
    collects = op.giver is Who.ALL and op.cut is Cut.WHOLE and not op.reduces
    share = (ranks - 1) / ranks if ranks else 0.0
    if op.reduces_for_all:
        return 2 * share
    return share if collects or op.cut is not Cut.WHOLE else 1.0


def measure_duration(step: Step) -> float | None:
    """Return the seconds from the entry of the last rank to the exit of the last; None if a rank is missing or failed.

    The data cannot be complete before the last rank has entered, so the wait for a late rank does not count as a slow
    network. Operations that do not synchronize (a broadcast, a small send) may have sent data before that, so they
    look faster than they are. A message ends when its receive ends, because the sender may never wait for its
    send.
    """
    ready = step.ready
    if ready is None or step.state == "failed":
        return None
    receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
    end = step.end if receiver is None else receiver.end
    return None if end is None else max(0.0, end - ready)


def summarize_operations(steps: Iterable[Step], by_size: bool = False) -> list[OpRow]:
    """Return a row for each operation, or each with its number of ranks and size; the longest total time first."""
    rows: dict[tuple[str, int, int], list[_Measured]] = defaultdict(list)
    for step in steps:
        one = _Measured(step, 2 if step.message else len(step.group.ranks), size_of(step), measure_duration(step))
        rows[(step.op, one.ranks, one.size) if by_size else (step.op, 0, 0)].append(one)
    return sorted((_row(key[0], of) for key, of in rows.items()), key=lambda row: (-row.total_s, row.op, row.size or 0))


class _Measured(NamedTuple):
    step: Step
    ranks: int
    size: int
    seconds: float | None


def _row(op: str, steps: list[_Measured]) -> OpRow:
    timed = [(one, one.seconds) for one in steps if one.seconds is not None]
    total = sum(seconds for _, seconds in timed)
    moved = sum(one.size for one, _ in timed)
    bus = sum(one.size * (bus_factor(get_operation(op), one.ranks) or 0.0) for one, _ in timed)
    sizes, ranks = {one.size for one in steps}, {one.ranks for one in steps}
    sums = _sum_flows(one.step for one in steps)
    return OpRow(
        op=op,
        size=sizes.pop() if len(sizes) == 1 else None,
        ranks=ranks.pop() if len(ranks) == 1 else None,
        count=len(steps),
        finished=len(timed),
        bytes=sum(one.size for one in steps),
        sent=round(math.fsum(sums.values())) if sums is not None else None,
        median_s=median(seconds for _, seconds in timed) if timed else None,
        total_s=total,
        waited_s=sum(sum(one.step.waited.values()) for one in steps),
        algbw=moved / total if total and moved else None,
        busbw=bus / total if total and bus else None,
    )
