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

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from lab.trace.model import Call
from lab.trace.steps import Step

_ALL_GATHER = frozenset(
    {"all_gather", "all_gather_into_tensor", "all_gather_coalesced", "all_gather_into_tensor_coalesced"}
)
_ALL_REDUCE = frozenset({"all_reduce", "all_reduce_coalesced"})
_PARTS_FOR_ALL = frozenset(
    {"reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single"}
)
_BARRIERS = frozenset({"barrier", "monitored_barrier"})
_WHOLE_FROM_OR_TO_ONE = frozenset({"broadcast", "reduce", "send"})


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
    sent: int
    """Logical bytes that all ranks together sent: the sum of `matrix` over these steps."""
    median_s: float | None
    """Seconds from the entry of the last rank to the end of the last; None where no step finished."""
    total_s: float
    """Sum of those seconds over the finished steps."""
    waited_s: float
    """Seconds that all ranks together were inside before the last one entered."""
    algbw: float | None
    """Algorithm bandwidth, bytes a second: S over the time, of all finished steps together."""
    busbw: float | None
    """Bus bandwidth, bytes a second: algorithm bandwidth times the factor of the operation."""


def matrix(steps: Iterable[Step], world_size: int) -> list[list[int]]:
    """Logical bytes that rank i (row) sent rank j (column), rounded to whole ones.

    A part counts when whoever was to receive it was done without an error. What a rank keeps for itself is no
    traffic: the diagonal is the messages that a rank sends itself.

    Args:
        steps: those to be counted.
        world_size: number of rows and columns; ranks beyond are left out.
    """
    sums: dict[tuple[int, int], Fraction | int] = defaultdict(int)
    for step, times in _alike(steps):
        for sender, receiver, size in flows(step):
            sums[sender, receiver] += times * size
    return [[round(sums.get((i, j), 0)) for j in range(world_size)] for i in range(world_size)]


def _alike(steps: Iterable[Step]) -> Iterable[tuple[Step, int]]:
    """One of each kind of step, and how many of the kind there are: training does the same over and over."""
    kinds: dict[Hashable, tuple[Step, int]] = {}
    for step in steps:
        calls = (
            (rank, call.op, call.bytes_in, call.bytes_out, call.state, call.splits, call.peer, call.root)
            + (tuple(buffer.count for buffer in call.inputs) if len(call.inputs) > 1 else ())
            for rank, call in sorted(step.calls.items())
        )
        kind = (step.message, step.group.ranks, *calls)
        kinds[kind] = step, kinds.get(kind, (step, 0))[1] + 1
    return kinds.values()


def flows(step: Step) -> Iterator[tuple[int, int, Fraction | int]]:
    """Sender, receiver and logical bytes of every part of a step that came to its receiver."""
    op = step.op
    if op in _BARRIERS or len({call.op for call in step.calls.values()} - {"recv", "send"}) > 1:
        return  # ranks that call different operations do not exchange anything that has a meaning
    if step.message:
        yield from _message(step)
        return
    for sender, receiver in _pairs(step):
        size = _part(op, step, sender, receiver)
        if size and step.calls[receiver].state == "completed":
            yield sender, receiver, size


def _message(step: Step) -> Iterator[tuple[int, int, int]]:
    """The message, where it arrived. One that a rank sends itself has no receive on record: its send tells."""
    source, destination = step.source, step.destination
    if source is None or destination is None:
        return
    receiver = step.calls.get(destination)
    sender = step.calls.get(source)
    if receiver is not None and receiver.state == "completed":
        yield source, destination, (sender or receiver).bytes


def _pairs(step: Step) -> Iterator[tuple[int, int]]:
    """Everybody who may have sent something to somebody else; both have entered."""
    entered = [rank for rank in step.group.ranks if rank in step.calls]
    source, destination = step.source, step.destination
    senders = entered if source is None else [rank for rank in entered if rank == source]
    receivers = entered if destination is None else [rank for rank in entered if rank == destination]
    return ((i, j) for i in senders for j in receivers if i != j)


def _part(op: str, step: Step, sender: int, receiver: int) -> Fraction | int:
    """Bytes that the sender has for the receiver."""
    call = step.calls[sender]
    ranks = step.group.ranks
    if op in _ALL_REDUCE:
        return _ratio(2 * call.bytes_in, len(ranks))
    if op in _PARTS_FOR_ALL:
        return _slice(call, ranks.index(receiver), len(ranks))
    if op == "scatter":
        return step.calls[receiver].bytes_out
    return call.bytes_in  # all_gather and gather: what it gives; broadcast, reduce: the tensor


def _slice(call: Call, position: int, parts: int) -> Fraction | int:
    """Bytes of what a call gives that are for one of the group's ranks; all elements have the same width."""
    if call.splits is not None and call.splits[1]:
        weights: Sequence[int] = call.splits[1]
    elif call.op in ("reduce_scatter", "all_to_all") and len(call.inputs) == parts:
        weights = [buffer.count for buffer in call.inputs]
    else:
        weights = [1] * parts
    total = sum(weights)
    return _ratio(call.bytes_in * weights[position], total) if total and position < len(weights) else 0


def _ratio(number: int, divisor: int) -> Fraction | int:
    """Exact, so that many small parts do not add up to a wrong sum; a plain number where it can be, for speed."""
    return Fraction(number, divisor) if number % divisor else number // divisor


def size_of(step: Step) -> int:
    """Bytes of a step as nccl-tests counts them (S); of ranks that differ, the largest."""
    calls = list(step.calls.values())
    op = step.op
    if op in _BARRIERS:
        return 0
    if op in _ALL_REDUCE | _PARTS_FOR_ALL:
        return max(call.bytes_in for call in calls)
    if op in _ALL_GATHER | {"gather"}:
        return sum(call.bytes_in for call in calls)
    if op == "scatter":
        return sum(call.bytes_out for call in calls)
    return max(call.bytes for call in calls)


def bus_factor(op: str, ranks: int) -> float | None:
    """What the algorithm bandwidth is multiplied by to have the bus bandwidth; None for a barrier.

    Args:
        op: as in `Step.op`.
        ranks: size of the group.
    """
    if op in _BARRIERS:
        return None
    if op in _WHOLE_FROM_OR_TO_ONE:
        return 1.0
    share = (ranks - 1) / ranks if ranks else 0.0
    return 2 * share if op in _ALL_REDUCE else share


def duration(step: Step) -> float | None:
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


def operations(steps: Iterable[Step], by_size: bool = False) -> list[OpRow]:
    """A row for each operation, the ones that took longest first.

    Args:
        steps: those to be counted.
        by_size: a row for each operation, number of ranks and size instead.
    """
    rows: dict[tuple[str, int, int], list[_Measured]] = defaultdict(list)
    for step in steps:
        one = _Measured(step, step.op, 2 if step.message else len(step.group.ranks), size_of(step), duration(step))
        rows[(one.op, one.ranks, one.size) if by_size else (one.op, 0, 0)].append(one)
    made = [_row(op, members) for (op, _, _), members in rows.items()]
    return sorted(made, key=lambda row: (-row.total_s, row.op, row.size or 0))


@dataclass(frozen=True, slots=True)
class _Measured:
    """A step with what is counted of it."""

    step: Step
    op: str
    ranks: int
    size: int
    seconds: float | None


def _row(op: str, steps: list[_Measured]) -> OpRow:
    timed = [(one, one.seconds) for one in steps if one.seconds is not None]
    total = sum(seconds for _, seconds in timed)
    moved = sum(one.size for one, _ in timed)
    bus = sum(one.size * (bus_factor(op, one.ranks) or 0.0) for one, _ in timed)
    measured = bool(total and moved)
    sizes, ranks = {one.size for one in steps}, {one.ranks for one in steps}
    kinds = _alike(one.step for one in steps)
    return OpRow(
        op=op,
        size=sizes.pop() if len(sizes) == 1 else None,
        ranks=ranks.pop() if len(ranks) == 1 else None,
        count=len(steps),
        finished=len(timed),
        bytes=sum(one.size for one in steps),
        sent=round(sum(times * size for step, times in kinds for _, _, size in flows(step))),
        median_s=median(seconds for _, seconds in timed) if timed else None,
        total_s=total,
        waited_s=sum(sum(one.step.waited.values()) for one in steps),
        algbw=moved / total if measured else None,
        busbw=bus / total if measured else None,
    )
