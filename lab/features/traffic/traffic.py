"""Who sends how much to whom, and how fast: bytes between ranks, and the bandwidth of each operation.

**Logical bytes.** Which way a backend takes (ring, tree, halving and doubling) cannot be seen from outside. What is
counted here is the direct algorithm, in which every byte goes straight from the rank that has it to the rank that
needs it. The total that each rank sends is then the size of the operation times nccl-tests' bus bandwidth factor. It
is not what was on the wire: headers, retransmissions, and detours of the algorithm are not in it.

**Sizes and factors** are those of nccl-tests, so that figures can be compared with published ones:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; those of gather, scatter, all-to-all and
send/receive, which that page does not derive, stand in `src/gather.cu`, `scatter.cu`, `alltoall.cu`, `sendrecv.cu`.

| operation | size S of one of n ranks' call, bytes | rank i sends rank j | factor |
|---|---|---|---|
| all_reduce | its tensor | 2 S / n | 2 (n-1) / n |
| all_gather | what it holds after it, of all ranks | what i gives | (n-1) / n |
| reduce_scatter | what it gives, for all ranks | the part for j | (n-1) / n |
| all_to_all | what it gives, for all ranks | the part for j | (n-1) / n |
| broadcast | the tensor | S, if i is the source | 1 |
| reduce | the tensor | S, if j is the destination | 1 |
| scatter | what the source gives, for all ranks | the part for j, if i is the source | (n-1) / n |
| gather | what the destination gets, of all ranks | what i gives, if j is the destination | (n-1) / n |
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
from lab.trace.model import Call
from lab.trace.steps import Step

_MOST_PAIRS = 1_500_000
"""Pairs of ranks in all steps that differ: a second or two. A step of 1,000 ranks has a million."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """What the steps of one operation had in common."""

    op: str
    """As in `Step.op`; a message is a `send`."""
    size: int | None
    """Bytes of each of them, as nccl-tests counts (S); None where the row holds several sizes."""
    ranks: int | None
    """Ranks that take part in each of them; None where that differs."""
    count: int
    """Steps, finished or not."""
    finished: int
    """Steps whose time is known: everybody entered and was done, without an error."""
    bytes: int
    """Sum of S over all steps."""
    sent: int | None
    """Logical bytes that all ranks together sent: the sum of `matrix` over these steps; None where it has none."""
    median_s: float | None
    """Seconds from the entry of the last rank to the end of the last; None where no step finished."""
    total_s: float
    """Sum of those seconds over the finished steps."""
    waited_s: float
    """Seconds that all ranks together were inside before everybody whom they needed had entered."""
    algbw: float | None
    """Algorithm bandwidth, bytes a second: S over the time, of all finished steps together."""
    busbw: float | None
    """Bus bandwidth, bytes a second: algorithm bandwidth times the factor of the operation."""


def build_matrix(steps: Sequence[Step], world_size: int) -> list[list[int]] | None:
    """Logical bytes that rank i (row) sent rank j (column), rounded to whole ones; None where pairs are too many.

    A part counts when its receiver was done without an error. What a rank keeps for itself is no
    traffic: the diagonal is the messages that a rank sends itself. Ranks beyond the world size are left out.
    """
    if world_size**2 > _MOST_PAIRS or (sums := _sum_flows(steps)) is None:
        return None
    return [[round(sums.get((i, j), 0.0)) for j in range(world_size)] for i in range(world_size)]


def _sum_flows(steps: Iterable[Step]) -> dict[tuple[int, int], float] | None:
    """Logical bytes by sender and receiver; None where pairs are too many."""
    alike = _alike(steps)
    if sum(1 if step.message else len(step.calls) ** 2 for step, _ in alike) > _MOST_PAIRS:
        return None
    sums: dict[tuple[int, int], float] = defaultdict(float)
    for step, times in alike:
        for sender, receiver, size in _flows(step):
            sums[sender, receiver] += times * size
    return sums


def _alike(steps: Iterable[Step]) -> Collection[tuple[Step, int]]:
    """One of each kind of step, and how many of the kind there are: training does the same over and over."""
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
    """Sender, receiver and logical bytes of every part of a step that came to its receiver."""
    if step.message:
        receiver = step.calls.get(step.destination) if step.destination is not None else None
        # A message that a rank sends itself has no receive on record: its send tells.
        if receiver is not None and step.source is not None and receiver.state == "completed":
            yield step.source, receiver.rank, step.calls.get(step.source, receiver).bytes
    elif len({call.op for call in step.calls.values()}) == 1:  # else they exchange nothing that has a meaning
        for call in step.calls.values():
            if call.state == "completed":
                yield from _received(step, call)


def _received(step: Step, call: Call) -> Iterator[tuple[int, int, float]]:
    """From whom a rank has how many bytes of what it holds after a call; all elements have the same width."""
    counts: dict[int, int] = defaultdict(int)
    for part in chain.from_iterable(output_parts(step, call)):
        for source in part.sources:
            counts[source.rank] += part.count
    elements = sum(buffer.count for buffer in call.outputs)
    # What all get the reduction of is reduced in parts, a part at each rank, and then handed round.
    times, parts = (2, len(step.group.ranks)) if call.operation.reduces_for_all else (1, 1)
    for sender, count in counts.items():
        if count and sender != call.rank and sender in step.calls:
            yield sender, call.rank, times * call.bytes_out * count / (parts * elements)


def size_of(step: Step) -> int:
    """Bytes of a step as nccl-tests counts them (S): the most that a rank gives or holds after it."""
    return max(call.bytes for call in step.calls.values())


def bus_factor(op: Operation, ranks: int) -> float | None:
    """What nccl-tests multiplies the algorithm bandwidth by; None where no data moves or nobody knows how."""
    if not op.moves_data or op.cut is Cut.OTHER:
        return None
    collects = op.giver is Who.ALL and op.cut is Cut.WHOLE and not op.reduces
    share = (ranks - 1) / ranks if ranks else 0.0
    if op.reduces_for_all:
        return 2 * share
    return share if collects or op.cut is not Cut.WHOLE else 1.0


def measure_duration(step: Step) -> float | None:
    """Seconds from the entry of the last rank to the end of the last; None where somebody never came or failed.

    Before the last has entered not all data can have flowed, so waiting for a late rank is not counted as slowness of
    the network. Operations that do not synchronise (a broadcast, a small send) may have moved data before that, which
    makes them look faster than they are. A message is over when the receive is: nobody may ever have looked at the
    send again.
    """
    ready = step.ready
    if ready is None or step.state == "failed":
        return None
    receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
    end = step.end if receiver is None else receiver.end
    return None if end is None else max(0.0, end - ready)


def summarize_operations(steps: Iterable[Step], by_size: bool = False) -> list[OpRow]:
    """A row for each operation, or each with its number of ranks and size; the ones that took longest first."""
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
