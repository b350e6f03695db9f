"""Compute what an operation should return from the recorded inputs of all ranks; find calls that do not fit together.

The calls of a step do not fit if they differ in the operation, dtype, shape, reduction, root, or splits. Only what an
operation requires to be equal is compared. A rank deviates if more than half of the ranks in the step agree on
something else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import accumulate, zip_longest
from operator import and_, or_, xor
from typing import Any, NamedTuple, TypeVar

from lab.operations import Cut, Operation, Who
from lab.trace.model import Buffer, Call
from lab.trace.steps import Step


@dataclass(frozen=True, slots=True)
class Misfit:
    """Rows that one rank sends to another, or to itself, and that differ from the rows that the receiver expects."""

    giver: int
    taker: int
    rows: int
    expected_rows: int = field(metadata={"key": "room"})


class Clash(NamedTuple):
    """A step whose calls do not fit together."""

    kind: str
    """`mismatch` (the operation), `dtype`, `shape`, `reduce_op`, `root`, `splits`."""
    step: Step
    sides: tuple[tuple[str, tuple[int, ...]], ...]
    """What was called or passed, and by which ranks; the side with most ranks comes first."""
    misfits: tuple[Misfit, ...] = ()
    """For splits: each pair that does not match."""
    is_disputed: bool = False
    """Whether ranks that agree here disagree in a later step of the group, as where each has an order of its own."""

    @property
    def deviating_ranks(self) -> tuple[int, ...]:
        """Ranks that differ from more than half of the ranks; empty without such a majority.

        Splits may legally differ. There it is the only rank that is part of every misfit, or the only rank whose own
        splits contradict each other.
        """
        if self.misfits:
            in_all = set.intersection(*({one.giver, one.taker} for one in self.misfits))
            with_itself = {one.giver for one in self.misfits if one.giver == one.taker}
            return next((tuple(ranks) for ranks in (in_all, with_itself) if len(ranks) == 1), ())
        if self.is_disputed or 2 * len(self.sides[0][1]) <= sum(len(ranks) for _, ranks in self.sides):
            return ()
        return tuple(sorted(rank for _, ranks in self.sides[1:] for rank in ranks))

    @property
    def comparable(self) -> bool:
        """Whether the expected results are still defined: each element has inputs from all ranks."""
        op = self.step.operation
        return self.kind == "shape" and op.cut is Cut.WHOLE and not op.joined


def find_clashes(steps: Iterable[Step]) -> list[Clash]:
    """Return the steps whose calls do not fit together, in order.

    In each group the first step with different operations is the last one reported: after it, the group's ranks are out
    of step, so later differences are only a consequence.
    """
    clashes: list[Clash] = []
    desynchronized: set[str] = set()
    steps = [*steps]
    for step in (*steps, *_messages_to_any(steps)):
        clash = clash_in(step) if len(step.calls) > 1 and step.group.name not in desynchronized else None
        if clash is not None:
            clashes.append(clash)
            if clash.kind == "mismatch":
                desynchronized.add(step.group.name)
    return _with_disputes(clashes)


def _with_disputes(clashes: Sequence[Clash]) -> list[Clash]:
    """Return clashes that know whether ranks that agree in them disagree in a later one of their group."""
    later: dict[str, set[tuple[tuple[int, ...], ...]]] = defaultdict(set)
    """By group: the different ways in which ranks disagreed, of which a long run has few."""
    known = []
    for clash in reversed(clashes):
        agreed, ways = {*clash.sides[0][1]}, later[clash.step.group.name]
        disputed = any(sum(not agreed.isdisjoint(ranks) for ranks in way) > 1 for way in ways)
        known.append(clash._replace(is_disputed=disputed))
        if not clash.misfits:
            ways.add(tuple(ranks for _, ranks in clash.sides))
    return known[::-1]


def _messages_to_any(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield receives from any rank that received nothing, each with the only message for it that does not fit."""
    alone = [call for step in steps if step.message and len(step.calls) == 1 for call in step.calls.values()]
    for receive in alone:
        if receive.operation.receives and receive.peer is None and receive.state != "completed":
            key = receive.rank, receive.tag, receive.group
            came = [one for one in alone if (one.peer, one.tag, one.group) == key and one.operation.sends]
            group = next(step.group for step in steps if receive in step.calls.values())
            pairs = (Step(0, group, None, {one.rank: one, receive.rank: receive}) for one in came)
            unfit = [pair for pair in pairs if clash_in(pair) is not None]
            yield from unfit if len(unfit) == 1 else ()


def clash_in(step: Step) -> Clash | None:
    """Return how the calls of a step contradict each other; None if they fit.

    If they do not fit, the behavior of a backend is undefined.
    """
    if step.message:
        return _clash_of_message(step)
    if len({call.op for call in step.calls.values()}) > 1:
        return _clash("mismatch", step, lambda call: call.op)
    op = step.operation
    clash = _clash("root", step, lambda call: "" if call.root is None else f"root {call.root}") if op.rooted else None
    if clash is None and op.reduces:
        clash = _clash("reduce_op", step, lambda call: call.reduce_op)
    clash = clash or _clash("dtype", step, _dtype, describe_tensors)
    if clash is not None or not op.moves_data:
        return clash
    if op.cut is Cut.SPLITS:
        return _clash_of_splits(step)
    if op.alike or not _fits(step):
        return _clash("shape", step, lambda call: str([b.count for b in _own(call)]), describe_tensors)
    return None


def describe_tensors(call: Call) -> str:
    """Describe the tensors of a call: `float32 [4]`, `float32 [4] ×3`."""
    words = [f"{buffer.dtype} {list(buffer.shape)}" for buffer in _own(call) or call.own]
    if len(words) > 1 and len(set(words)) == 1:
        return f"{words[0]} ×{len(words)}"
    return ", ".join(words[:4]) + (", …" if len(words) > 4 else "") or "nothing"


def _clash(
    kind: str,
    step: Step,
    key: Callable[[Call], str],
    words: Callable[[Call], str] | None = None,
    misfits: tuple[Misfit, ...] = (),
) -> Clash | None:
    """Group the ranks by a key, the largest group first; return None for a single group.

    A rank with an empty key belongs to no group.
    """
    if not misfits and len({*map(key, step.calls.values())}) == 1:  # the common case
        return None
    sides: dict[str, list[int]] = defaultdict(list)
    descriptions: dict[str, str] = {}
    for rank, call in sorted(step.calls.items()):
        if value := key(call):
            sides[value].append(rank)
            descriptions.setdefault(value, words(call) if words else value)
    ordered = sorted(sides.items(), key=lambda item: (-len(item[1]), item[1]))
    described = tuple((descriptions[value], tuple(ranks)) for value, ranks in ordered)
    return Clash(kind, step, described, misfits) if misfits or len(described) > 1 else None


def _dtype(call: Call) -> str:
    """Return the dtypes of all tensors of a call; empty for a call without tensors."""
    return ", ".join(sorted({buffer.dtype for buffer in (*call.inputs, *call.outputs)}))


def _own(call: Call) -> tuple[Buffer, ...]:
    """Return the tensors of the rank's own part.

    If an operation distributes parts, this is the part that each rank receives.
    """
    deals = call.operation.giver is Who.ROOT and call.operation.cut is not Cut.WHOLE
    return call.outputs if deals else call.inputs


def _fits(step: Step) -> bool:
    """Return whether each tensor that a rank sends has as many elements as the receiver's tensor for it."""
    op = step.operation
    if op.cut not in (Cut.WHOLE, Cut.TENSORS):
        return True
    members = {rank: position for position, rank in enumerate(step.group.ranks)}
    for giver, sent in step.calls.items():
        for taker, received in step.calls.items():
            here, there = members.get(giver, 0), members.get(taker, 0)
            parts = sent.inputs if op.cut is Cut.WHOLE else sent.inputs[there : there + 1]
            start = 0 if op.giver is Who.ROOT else here * len(parts)
            buffers = received.outputs[start : start + len(parts)]
            if any(one.count != other.count for one, other in zip(parts, buffers, strict=False)):
                return False
    return True


def _clash_of_splits(step: Step) -> Clash | None:
    """Return the ranks whose input split differs from the output split of the receiver."""

    def rows(call: Call) -> list[list[int]]:
        return [slice_rows(call, len(step.group.ranks), of_output=of_output) for of_output in (True, False)]

    ranks = step.group.ranks
    splits = {position: rows(step.calls[rank]) for position, rank in enumerate(ranks) if rank in step.calls}
    misfits = tuple(
        Misfit(ranks[here], ranks[there], sent[there], received[here])
        for here, (_, sent) in splits.items()
        for there, (received, _) in splits.items()
        if sent[there] != received[here]
    )
    words = "output {}, input {}"
    return _clash("splits", step, lambda call: words.format(*rows(call)), misfits=misfits) if misfits else None


def slice_rows(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Return the rows per rank in a call's splits; without splits, equal parts."""
    buffers = call.outputs if of_output else call.inputs
    splits = call.splits[0 if of_output else 1] if call.splits else ()
    rows = buffers[0].shape[0] if buffers and buffers[0].shape else 0
    return list(splits) if len(splits) == world_size else [rows // world_size] * world_size


def _clash_of_message(step: Step) -> Clash | None:
    sent = next((call.inputs for call in step.calls.values() if call.operation.sends), ())
    received = next((call.outputs or call.inputs for call in step.calls.values() if call.operation.receives), ())
    if not sent or not received or (sent[0].dtype, sent[0].count) == (received[0].dtype, received[0].count):
        return None
    kind = "dtype" if sent[0].dtype != received[0].dtype else "shape"
    return _clash(kind, step, lambda call: call.op, describe_tensors)


@dataclass(frozen=True, slots=True)
class Source:
    """A run of elements in one input."""

    rank: int
    """Global rank."""
    tensor: int
    """Index into the inputs of that rank's call."""
    start: int
    """Index of its first element."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of elements in a tensor with the same origin."""

    count: int
    sources: tuple[Source, ...] = ()
    """One: copied from there; several: reduced over them; none: the definition leaves the value open."""
    reduced: bool = False
    """Whether it is the result of a reduction, even over a single rank."""
    target: int | None = None
    """For an input: the only rank that receives it; None if all do, or if the operation has one receiver."""

    @property
    def origins(self) -> tuple[int, ...]:
        """Ranks that it comes from."""
        return tuple(source.rank for source in self.sources)


Rule = Callable[[Step, Call, int], tuple[Part, ...]]


def output_parts(step: Step, call: Call) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of each output of one rank's call, in the order of elements."""
    rule = RULES.get(call.op, _by_table)
    return tuple(
        rule(step, call, index) or (Part(output.count),)  # the definition leaves it open
        for index, output in enumerate(call.outputs)
    )


def input_parts(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """Return the parts of one input that go to different ranks, or one part if the input is not split."""
    count, ranks, cut = call.inputs[index].count, step.group.ranks, call.operation.cut
    sizes = slice_sizes(call, len(ranks), of_output=False) if cut is Cut.SPLITS else []
    if cut is Cut.SLICES and count % len(ranks) == 0:
        sizes = [count // len(ranks)] * len(ranks)
    if not sizes or sum(sizes) != count:
        target = ranks[index] if cut is Cut.TENSORS and index < len(ranks) else None
        return (Part(count, (Source(call.rank, index, 0),), target=target),)
    starts = accumulate(sizes, initial=0)
    return tuple(
        Part(size, (Source(call.rank, index, start),), target=rank)
        for rank, size, start in zip(ranks, sizes, starts, strict=False)
    )


def _by_table(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """Return the parts of an output as the table of operations defines them."""
    op, count = call.operation, call.outputs[index].count
    if op.cut is Cut.SPLITS:
        return _by_splits(step, call, index)
    ranks, me = step.group.ranks, _group_rank(step, call.rank)
    if (op.cut is Cut.OTHER or op.sends or not op.moves_data) or (op.taker is Who.ROOT and call.rank != call.root):
        return ()
    where = (me if op.cut is Cut.TENSORS else index, me * count if op.cut is Cut.SLICES else 0)
    if op.giver is not Who.ALL:
        return () if call.giver is None else (Part(count, (Source(call.giver, *where),)),)

    def of_all() -> tuple[Part, ...]:
        sources = tuple(Source(rank, *where) for rank in ranks)
        if op.reduces:
            return (Part(count, sources, reduced=True),)
        return tuple(Part(count // len(ranks), (source,)) for source in sources)

    if op.reduces or op.joined:
        if op.joined and (not ranks or count % len(ranks)):
            return ()
        return step.cached(("parts", count, where), of_all) if same_for_all(op) else of_all()
    # An output for each tensor of each rank, grouped by rank.
    each = max(1, len(call.inputs)) if op.cut is Cut.WHOLE else 1
    if index // each >= len(ranks):
        return ()
    return (Part(count, (Source(ranks[index // each], index % each if op.cut is Cut.WHOLE else me, 0),)),)


def same_for_all(op: Operation) -> bool:
    """Return whether every rank receives the same result, made of the inputs of all."""
    return op.cut is Cut.WHOLE and (op.reduces or op.joined)


def _by_splits(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    me, sizes = _group_rank(step, call.rank), slice_sizes(call, len(step.group.ranks), of_output=True)
    if sum(sizes) != call.outputs[index].count:
        return ()
    starts = [step.cached(("starts", rank), partial(_starts, step, rank)) for rank in step.group.ranks]
    each = zip(step.group.ranks, sizes, starts, strict=True)
    return tuple(Part(size, (Source(rank, index, begins[me] if begins else 0),)) for rank, size, begins in each)


def _starts(step: Step, rank: int) -> list[int]:
    """Return where each slice of a rank's input begins; empty if the rank never entered."""
    sender, size = step.calls.get(rank), len(step.group.ranks)
    return [*accumulate(slice_sizes(sender, size, of_output=False), initial=0)] if sender is not None else []


RULES: dict[str, Rule] = {}
"""By name: rules for operations whose row in the table does not define their results."""


def _group_rank(step: Step, rank: int) -> int:
    """Return the group rank."""
    return step.group.ranks.index(rank) if rank in step.group.ranks else 0


def slice_sizes(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Return the elements in each slice of an `all_to_all_single`."""
    buffers = call.outputs if of_output else call.inputs
    width = buffers[0].count // (buffers[0].shape[0] or 1) if buffers and buffers[0].shape else 1
    return [rows * width for rows in slice_rows(call, world_size, of_output=of_output)]


_PRECISION = {
    "float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
    "complex128": 2.0**-52, "complex64": 2.0**-23,
}  # fmt: skip
"""Distance from 1 to the next number."""
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028234e38}
_LEAST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126,
          "complex128": 2.0**-1022, "complex64": 2.0**-126}  # fmt: skip
"""The smallest normal number; below it digits are lost, and some processors return 0."""
_COARSE = 0.25
"""Precision of dtypes that are not listed: floats of 8 bits."""
_ADDS = ("SUM", "AVG")

Number = int | float | complex | bool
T = TypeVar("T")


def _once(step: Step, parts: Sequence[Part], what: Hashable, find: Callable[[], T]) -> T:
    """Compute a value from parts; once for all ranks if they all receive the same."""
    if not same_for_all(step.operation):
        return find()
    # The cache keeps the parts alive, so that their id is not reused.
    _, value = step.cached((id(parts), what), lambda: (parts, find()))
    return value


def compare_values(
    step: Step, parts: Sequence[Part], dtype: str, values: Sequence[Any]
) -> list[tuple[Number | None, bool]]:
    """Return for each element its expected value, None if unknown, and whether the element differs from it.

    It is unknown if an input was not recorded, or if the definition leaves it open.
    """
    expected = _once(step, parts, dtype, lambda: [one for part in parts for one in _of_part(step, part, dtype)])
    return [
        (value, value is not None and got != value and not is_expected_value(got, value, tolerance))
        for got, (value, tolerance) in zip(values, expected, strict=False)
    ]


def is_copy(step: Step, buffer: Buffer, parts: Sequence[Part]) -> bool | None:
    """Return whether a tensor is a copy of its source; None if the hashes do not tell, like equal hashes of samples."""
    if len(parts) != 1 or len(parts[0].sources) != 1 or parts[0].reduced:
        return None
    source = parts[0].sources[0]
    origin = source_buffer(step, source)
    if origin is None or source.start or (origin.count, origin.dtype) != (buffer.count, buffer.dtype):
        return None
    both = buffer.summary or {}, origin.summary or {}
    ours, theirs = (one.get("hash") for one in both)
    is_unknown = not ours or not theirs or (ours == theirs and any(one.get("sampled") for one in both))
    return None if is_unknown else bool(ours == theirs)


def is_outside(step: Step, buffer: Buffer, parts: Sequence[Part]) -> bool:
    """Return whether a summary shows that the result of a reduction is impossible.

    A sum lies between the sum of the ranks' minima and the sum of their maxima. Tensors of the same size are sampled at
    the same elements.
    """
    if len(parts) != 1 or not parts[0].reduced or buffer.dtype not in _PRECISION or buffer.dtype.startswith("complex"):
        return False
    if (got := _range(buffer)) is None:
        return False
    bounds = _once(step, parts, ("bounds", buffer.count, buffer.dtype), lambda: _bounds(step, parts[0], buffer))
    return any(
        isinstance(bound, float) and beyond * (mine - bound) > 4 * tolerance + _LEAST.get(buffer.dtype, 0.0)
        for (bound, tolerance), mine, beyond in zip(bounds, got, (-1, 1), strict=False)
    )


def _bounds(step: Step, part: Part, buffer: Buffer) -> list[tuple[Number | None, float]]:
    """Return the least and the greatest element that a reduction can return, with tolerances; empty if unknown."""
    origins = [source_buffer(step, source) for source in part.sources if not source.start]
    alike = [one for one in origins if one is not None and (one.count, one.dtype) == (buffer.count, buffer.dtype)]
    known, red = [limits for one in alike if (limits := _range(one)) is not None], reduce_op(step)
    if len(known) < max(2, len(part.sources), len(alike)) or red not in (*_ADDS, "MIN", "MAX"):
        return []
    return [reduce_numbers(red, buffer.dtype, [one[side] for one in known]) for side in (0, 1)]


def _range(buffer: Buffer) -> tuple[float, float] | None:
    """Return the least and the greatest element; None if they are unknown or not finite."""
    ends = [(buffer.summary or {}).get(name) for name in ("min", "max")]
    known = [float(end) for end in ends if isinstance(end, (int, float)) and math.isfinite(end)]
    return (known[0], known[1]) if len(known) == 2 else None


def _of_part(step: Step, part: Part, dtype: str) -> Iterator[tuple[Number | None, float]]:
    """Yield the value and the tolerance of each element.

    The tolerance is above 0 only for sums, means, and products of floats: these depend on a backend's order of
    operations.
    """
    buffers = [(source.start, source_buffer(step, source)) for source in part.sources]
    rows = [((buffer and buffer.values) or ())[start : start + part.count] for start, buffer in buffers]
    red = reduce_op(step) if part.reduced else ""
    added = red in _ADDS and dtype in _PRECISION
    if added and all(len(row) == part.count and set(map(type, row)) == {float} for row in rows):  # most tensors
        yield from (_added(red, dtype, numbers) for numbers in zip(*rows, strict=True))
        return
    for _, *cells in zip_longest(range(part.count), *rows):
        if not cells or None in cells:
            yield None, 0.0
        elif part.reduced:
            yield reduce_numbers(red, dtype, [number_of(cell) for cell in cells])
        else:
            yield number_of(cells[0]), 0.0


def source_buffer(step: Step, source: Source) -> Buffer | None:
    """Return an input of a rank as it was before the call; None if it was not recorded."""
    call = step.calls.get(source.rank)
    return call.inputs[source.tensor] if call is not None and source.tensor < len(call.inputs) else None


def reduce_op(step: Step) -> str:
    """Return `SUM`, `MAX`, ...; empty if ranks differ."""
    names = {call.reduce_op for call in step.calls.values()}
    return names.pop() if len(names) == 1 else ""


def number_of(value: Any) -> Number:
    """Return a recorded value as a number; JSON stores some as `"nan"`, `"inf"`, or `[real, imaginary]`."""
    if isinstance(value, (list, tuple)):
        return complex(float(value[0]), float(value[1]))
    number: Number = float(value) if isinstance(value, str) else value
    return number


def reduce_numbers(red: str, dtype: str, numbers: Sequence[Number]) -> tuple[Number | None, float]:
    """Return the result of a reduction and its tolerance; None if the result is undefined."""
    is_complex = any(isinstance(number, complex) for number in numbers)
    if not is_complex and not dtype.startswith(("float", "bfloat")):
        of_integers = _OF_INTEGERS.get(red)
        whole = of_integers([int(number.real) for number in numbers]) if of_integers else None
        return (whole if whole is None else bool(whole) if dtype == "bool" else _wrap(whole, dtype)), 0.0
    if red in ("MIN", "MAX") and not is_complex:
        reals = [number.real for number in numbers]
        unordered = any(map(math.isnan, reals))  # which one a backend keeps depends on the order
        return (None if unordered else _OF_ORDER[red](reals)), 0.0
    if red in _ADDS:
        return _added(red, dtype, numbers)
    return _product(numbers, dtype) if red == "PRODUCT" else (None, 0.0)


_OF_ORDER: dict[str, Callable[[Iterable[Any]], Any]] = {"MIN": min, "MAX": max}
_OF_INTEGERS: dict[str, Callable[[Iterable[int]], int]] = {
    **_OF_ORDER,
    "SUM": sum,
    "PRODUCT": math.prod,
    "BAND": partial(reduce, and_),
    "BOR": partial(reduce, or_),
    "BXOR": partial(reduce, xor),
}
"""For booleans the result is the same, with any positive number for True."""


def _added(red: str, dtype: str, numbers: Sequence[Number]) -> tuple[Number | None, float]:
    """Return the sum or the mean."""
    count, total, sizes = len(numbers), sum(numbers), sum(map(abs, numbers))
    if red == "SUM":
        return _rounded(total, sizes, count, dtype)
    return _rounded(total / count, sizes / count, count + 1, dtype)


def _rounded(value: Number, sizes: float, operands: int, dtype: str) -> tuple[Number | None, float]:
    if _LARGEST.get(dtype, math.inf) < sizes < math.inf:
        return None, 0.0  # whether an intermediate result overflows depends on the order
    return value, operands * (_PRECISION.get(dtype, _COARSE) * sizes + _LEAST.get(dtype, 0.0))


def _product(factors: Sequence[Number], dtype: str) -> tuple[Number | None, float]:
    """Return the product, if no order of multiplication can leave the range of the dtype."""
    result, sizes = math.prod(factors), [abs(factor) for factor in factors if factor]
    least = math.prod(size for size in sizes if size < 1)
    most = math.prod(size for size in sizes if size > 1)
    vanishes = least < _LEAST.get(dtype, _COARSE)
    if math.isfinite(abs(result)) and (most > _LARGEST.get(dtype, 1e308) or (vanishes and most > 1)):
        return None, 0.0
    return _rounded(result, abs(result), len(factors) * (4 if isinstance(result, complex) else 1), dtype)


def _wrap(value: int, dtype: str) -> int:
    """Return an integer wrapped to the bits of its dtype."""
    digits = dtype.lstrip("uint")
    if not digits.isdecimal():
        return value
    bits = int(digits)
    value &= (1 << bits) - 1
    return value - (1 << bits) if not dtype.startswith("u") and value >> (bits - 1) else value


def is_expected_value(actual: Any, expected: Number, tolerance: float) -> bool:
    """Return whether a recorded value is the expected one."""
    number = actual if type(actual) is float else number_of(actual)
    if number == expected or (number != number and expected != expected):  # NaN, also in complex numbers
        return True
    difference = abs(number - expected)
    return difference <= tolerance and not math.isinf(difference)
