"""What an operation should have given, computed from the recorded inputs of all ranks, and whether it did."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any, TypeVar

from lab.operations import Cut, Operation, Who
from lab.trace.clashes import slice_rows
from lab.trace.model import Buffer, Call
from lab.trace.steps import Step


@dataclass(frozen=True, slots=True)
class Source:
    """A run of elements of one input."""

    rank: int
    """Global rank."""
    tensor: int
    """Index into the inputs of that rank's call."""
    start: int
    """Its first element."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of elements of a tensor that come from the same place."""

    count: int
    sources: tuple[Source, ...] = ()
    """One: copied from there; several: reduced over them; none: the definition does not say what it holds."""
    reduced: bool = False
    """Whether it is the result of a reduction, even of one rank alone."""
    target: int | None = None
    """Of an input: the only rank that gets it; None where all do, or where the operation has but one receiver."""

    @property
    def origins(self) -> tuple[int, ...]:
        """Ranks that it comes from."""
        return tuple(source.rank for source in self.sources)


Rule = Callable[[Step, Call, int], tuple[Part, ...]]


def output_parts(step: Step, call: Call) -> tuple[tuple[Part, ...], ...]:
    """The parts of each output of one rank's call, in the order of their elements."""
    rule = RULES.get(call.op, _by_table)
    return tuple(
        rule(step, call, index) or (Part(output.count),)  # the definition leaves it open
        for index, output in enumerate(call.outputs)
    )


def input_parts(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """The parts of one input, each of which goes to another rank, or the whole where it is not dealt out."""
    count, ranks, cut = call.inputs[index].count, step.group.ranks, call.operation.cut
    if cut is Cut.TENSORS and index < len(ranks):
        return (Part(count, (Source(call.rank, index, 0),), target=ranks[index]),)
    sizes = slice_sizes(call, len(ranks), of_output=False) if cut is Cut.SPLITS else []
    if cut is Cut.SLICES and count % len(ranks) == 0:
        sizes = [count // len(ranks)] * len(ranks)
    if not sizes or sum(sizes) != count:
        return (Part(count, (Source(call.rank, index, 0),)),)
    starts = accumulate(sizes, initial=0)
    return tuple(
        Part(size, (Source(call.rank, index, start),), target=rank)
        for rank, size, start in zip(ranks, sizes, starts, strict=False)
    )


def _by_table(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """What the facts in the table of operations say."""
    op, count = call.operation, call.outputs[index].count
    if op.cut is Cut.SPLITS:
        return _by_splits(step, call, index)
    ranks, me = step.group.ranks, _place(step, call.rank)
    where = (me if op.cut is Cut.TENSORS else index, me * count if op.cut is Cut.SLICES else 0)
    nothing = op.cut is Cut.OTHER or op.sends or not op.moves_data
    if nothing or (op.taker is Who.ROOT and call.rank != call.root):
        return ()
    if op.giver is not Who.ALL:
        return () if call.giver is None else (Part(count, (Source(call.giver, *where),)),)
    if op.reduces and same_for_all(op):
        return step.remembered(("reduced", count, where), lambda: (_reduced(count, ranks, where),))
    if op.reduces:
        return (_reduced(count, ranks, where),)
    if op.joined:
        whole, rest = divmod(count, max(1, len(ranks)))
        return () if rest else step.remembered(("joined", whole, where), lambda: _joined(whole, ranks, where))
    # An output for each tensor of each rank; those of a rank stand together.
    each = max(1, len(call.inputs)) if op.cut is Cut.WHOLE else 1
    if index // each >= len(ranks):
        return ()
    tensor = index % each if op.cut is Cut.WHOLE else me
    return (Part(count, (Source(ranks[index // each], tensor, 0),)),)


def same_for_all(op: Operation) -> bool:
    """Whether every rank gets the same, made of what all give."""
    return op.cut is Cut.WHOLE and (op.reduces or op.joined)


def _reduced(count: int, ranks: Sequence[int], where: tuple[int, int]) -> Part:
    return Part(count, tuple(Source(rank, *where) for rank in ranks), reduced=True)


def _joined(count: int, ranks: Sequence[int], where: tuple[int, int]) -> tuple[Part, ...]:
    return tuple(Part(count, (Source(rank, *where),)) for rank in ranks)


def _by_splits(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    me = _place(step, call.rank)
    sizes = slice_sizes(call, len(step.group.ranks), of_output=True)
    if sum(sizes) != call.outputs[index].count:
        return ()
    parts = []
    for rank, size in zip(step.group.ranks, sizes, strict=True):
        starts = step.remembered(("starts", rank), lambda rank=rank: _starts(step, rank))  # type: ignore[misc]
        parts.append(Part(size, (Source(rank, index, starts[me] if starts else 0),)))
    return tuple(parts)


def _starts(step: Step, rank: int) -> list[int]:
    """Where each slice of what a rank gives begins; nothing where it never entered."""
    sender = step.calls.get(rank)
    if sender is None:
        return []
    return [*accumulate(slice_sizes(sender, len(step.group.ranks), of_output=False), initial=0)]


RULES: dict[str, Rule] = {}
"""By name: rules of operations whose line in the table does not say where their results come from."""


def _place(step: Step, rank: int) -> int:
    """The rank within the group."""
    return step.group.ranks.index(rank) if rank in step.group.ranks else 0


def slice_sizes(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Elements of each slice of an `all_to_all_single`."""
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
"""The least number that has all its digits; below it digits are lost, and some processors make it 0."""
_COARSE = 0.25
"""Precision of what is not listed: floats of 8 bits."""
_ADDS = ("SUM", "AVG")

Number = int | float | complex | bool
T = TypeVar("T")


def expected_values(step: Step, parts: Sequence[Part], dtype: str) -> list[tuple[Number | None, float]]:
    """The value and the tolerance of each element of a tensor.

    The value is None where nobody can say: an input is not on record, or the definition leaves it open. The tolerance
    is above 0 only for sums, means and products of floats, which depend on the order in which a backend adds.
    """
    return _once(step, parts, dtype, lambda: [one for part in parts for one in _of_part(step, part, dtype)])


def _once(step: Step, parts: Sequence[Part], what: Hashable, find: Callable[[], T]) -> T:
    """What follows from parts, found out once where all ranks get the same, and so have the same parts."""
    if not same_for_all(step.operation):
        return find()
    # Kept with the parts themselves: no others can come to stand where they are.
    _, found = step.remembered((id(parts), what), lambda: (parts, find()))
    return found


def compared(step: Step, parts: Sequence[Part], dtype: str, values: Sequence[Any]) -> list[tuple[Number | None, bool]]:
    """Of each element of a tensor what it ought to be, None where nobody can say, and whether it is not that."""
    expected = expected_values(step, parts, dtype)
    return [
        (value, value is not None and got != value and not agrees(got, value, tolerance))
        for got, (value, tolerance) in zip(values, expected, strict=False)
    ]


def is_copy(step: Step, buffer: Buffer, parts: Sequence[Part]) -> bool | None:
    """Whether a tensor is a copy of the one it should be; None where the hashes do not tell: equal samples do not."""
    if len(parts) != 1 or len(parts[0].sources) != 1 or parts[0].reduced:
        return None
    source = parts[0].sources[0]
    origin = source_buffer(step, source.rank, source.tensor)
    if origin is None or source.start or (origin.count, origin.dtype) != (buffer.count, buffer.dtype):
        return None
    ours, theirs = (summary.get("hash") if summary else None for summary in (buffer.summary, origin.summary))
    if not ours or not theirs:
        return None
    sampled = any(summary and summary.get("sampled") for summary in (buffer.summary, origin.summary))
    return None if ours == theirs and sampled else bool(ours == theirs)


def is_outside(step: Step, buffer: Buffer, parts: Sequence[Part]) -> bool:
    """Whether a summary says of a reduction's result what no result can be, whatever lies in between.

    A sum is no less than the sum of what is least on each rank, and no more than that of what is greatest. Tensors of
    the same size are summarised from the same elements.
    """
    if len(parts) != 1 or not parts[0].reduced or buffer.dtype not in _PRECISION or buffer.dtype.startswith("complex"):
        return False
    got = _range(buffer)
    if got is None:
        return False
    bounds = _once(step, parts, ("bounds", buffer.count, buffer.dtype), lambda: _bounds(step, parts[0], buffer))
    for (bound, tolerance), least_or_most, beyond in zip(bounds, got, (-1, 1), strict=False):
        if isinstance(bound, float) and beyond * (least_or_most - bound) > 4 * tolerance + _LEAST.get(
            buffer.dtype, 0.0
        ):
            return True
    return False


def _bounds(step: Step, part: Part, buffer: Buffer) -> list[tuple[Number | None, float]]:
    """The least and the greatest element that a reduction can give, with tolerances; nothing where nobody can say."""
    origins = [source_buffer(step, source.rank, source.tensor) for source in part.sources if not source.start]
    alike = [one for one in origins if one is not None and (one.count, one.dtype) == (buffer.count, buffer.dtype)]
    given, red = [_range(one) for one in alike], reduce_op(step)
    known = [one for one in given if one is not None]
    if len(known) < len(given) or len(given) < max(2, len(part.sources)) or red not in ("SUM", "AVG", "MIN", "MAX"):
        return []
    return [reduce_numbers(red, buffer.dtype, [one[side] for one in known]) for side in (0, 1)]


def _range(buffer: Buffer) -> tuple[float, float] | None:
    """The least and the greatest element; None where they are not known or not finite."""
    summary = buffer.summary or {}
    least, greatest = summary.get("min"), summary.get("max")
    if not isinstance(least, (int, float)) or not isinstance(greatest, (int, float)):
        return None
    return (float(least), float(greatest)) if math.isfinite(least) and math.isfinite(greatest) else None


def _of_part(step: Step, part: Part, dtype: str) -> Iterator[tuple[Number | None, float]]:
    buffers = [source_buffer(step, source.rank, source.tensor) for source in part.sources]
    columns = [(buffer.values if buffer is not None else None) or () for buffer in buffers]
    red = reduce_op(step) if part.reduced else ""
    if red in _ADDS and dtype in _PRECISION:
        rows = [
            values[source.start : source.start + part.count]
            for source, values in zip(part.sources, columns, strict=True)
        ]
        if all(len(row) == part.count and set(map(type, row)) == {float} for row in rows):  # what most tensors are
            yield from (_added(red, dtype, numbers) for numbers in zip(*rows, strict=True))
            return
    for k in range(part.count):
        cells = [
            values[source.start + k] if source.start + k < len(values) else None
            for source, values in zip(part.sources, columns, strict=True)
        ]
        numbers = [number_of(cell) for cell in cells if cell is not None]
        if not cells or len(numbers) < len(cells):
            yield None, 0.0
        elif part.reduced:
            yield reduce_numbers(red, dtype, numbers)
        else:
            yield numbers[0], 0.0


def source_buffer(step: Step, rank: int, tensor: int) -> Buffer | None:
    """An input of a rank as it was before the call; None where there is none on record."""
    call = step.calls.get(rank)
    return call.inputs[tensor] if call is not None and tensor < len(call.inputs) else None


def reduce_op(step: Step) -> str:
    """`SUM`, `MAX`, ...; empty where the ranks did not say the same."""
    said = {call.reduce_op for call in step.calls.values()}
    return said.pop() if len(said) == 1 else ""


def number_of(value: Any) -> Number:
    """A recorded value as a number: `"nan"`, `"inf"` and `[real, imaginary]` are those of JSON's making."""
    if isinstance(value, str):
        return float(value)
    if isinstance(value, (list, tuple)):
        return complex(float(value[0]), float(value[1]))
    number: Number = value
    return number


def reduce_numbers(red: str, dtype: str, numbers: Sequence[Number]) -> tuple[Number | None, float]:
    """The result of a reduction and how far a backend's may be from it; None for what cannot be said."""
    if dtype == "bool":
        return _reduce_booleans(red, [bool(number) for number in numbers]), 0.0
    if any(isinstance(number, complex) for number in numbers):
        return _reduce_complex(red, dtype, [complex(number) for number in numbers])
    reals = [number.real for number in numbers]
    whole = not dtype.startswith(("float", "bfloat"))
    if red in ("MIN", "MAX"):
        if any(math.isnan(real) for real in reals):
            return None, 0.0  # which of the two a backend keeps depends on the order
        return (min(reals) if red == "MIN" else max(reals)), 0.0
    if whole and red in ("BAND", "BOR", "BXOR"):
        return reduce(_BITS[red], (int(real) for real in reals)), 0.0
    if whole and red in ("SUM", "PRODUCT"):
        return _wrap(int(sum(reals) if red == "SUM" else math.prod(reals)), dtype), 0.0
    if red == "PRODUCT":
        return _product(reals, dtype)
    if red == "SUM" or (red == "AVG" and not whole):
        return _added(red, dtype, reals)
    return None, 0.0


def _added(red: str, dtype: str, reals: Sequence[float]) -> tuple[Number | None, float]:
    """Their sum, or their mean."""
    if red == "SUM":
        return _rounded(sum(reals), sum(map(abs, reals)), len(reals), dtype)
    return _rounded(sum(reals) / len(reals), sum(map(abs, reals)) / len(reals), len(reals) + 1, dtype)


_BITS = {"BAND": int.__and__, "BOR": int.__or__, "BXOR": int.__xor__}


def _reduce_booleans(red: str, values: Sequence[bool]) -> bool | None:
    """For booleans a sum is an `or`, a product an `and`."""
    if red in ("SUM", "MAX", "BOR"):
        return any(values)
    if red in ("PRODUCT", "MIN", "BAND"):
        return all(values)
    return sum(values) % 2 == 1 if red == "BXOR" else None


def _reduce_complex(red: str, dtype: str, values: Sequence[complex]) -> tuple[Number | None, float]:
    tolerance, least = _PRECISION.get(dtype, _COARSE) * (len(values) + 1), len(values) * _LEAST.get(dtype, 0.0)
    if red in ("SUM", "AVG"):
        share = len(values) if red == "AVG" else 1
        return sum(values) / share, tolerance * sum(abs(value) for value in values) / share + least
    if red == "PRODUCT":
        product = math.prod(values)
        return product, 4 * tolerance * abs(product) + least
    return None, 0.0


def _rounded(value: float, sizes: float, operands: int, dtype: str) -> tuple[Number | None, float]:
    if _LARGEST.get(dtype, math.inf) < sizes < math.inf:
        return None, 0.0  # whether it overflows on the way depends on the order
    return value, operands * (_PRECISION.get(dtype, _COARSE) * sizes + _LEAST.get(dtype, 0.0))


def _product(factors: Sequence[float], dtype: str) -> tuple[Number | None, float]:
    """The product, where no order of multiplying leaves the range of the dtype on the way."""
    result, sizes = math.prod(factors), [abs(factor) for factor in factors if factor]
    least = math.prod(size for size in sizes if size < 1)
    most = math.prod(size for size in sizes if size > 1)
    vanishes = least < _LEAST.get(dtype, _COARSE)
    if math.isfinite(result) and (most > _LARGEST.get(dtype, 1e308) or (vanishes and most > 1)):
        return None, 0.0
    return _rounded(result, abs(result), len(factors), dtype)


def _wrap(value: int, dtype: str) -> int:
    """An integer as this many bits hold it."""
    digits = dtype.lstrip("uint")
    if not digits.isdecimal():
        return value
    bits = int(digits)
    value &= (1 << bits) - 1
    return value - (1 << bits) if not dtype.startswith("u") and value >> (bits - 1) else value


def agrees(actual: Any, expected: Number, tolerance: float) -> bool:
    """Whether a recorded value is the expected one."""
    number = actual if type(actual) is float else number_of(actual)
    difference = abs(number - expected)
    if difference <= tolerance and not math.isinf(difference):
        return True
    return bool(number == expected) or (_is_nan(number) and _is_nan(expected))


def _is_nan(number: Number) -> bool:
    return number != number  # the definition of nan, and it holds for complex numbers too
