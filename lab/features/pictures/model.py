"""The picture of one step as data: what each rank had before and after, from where, and whether it is right."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import copysign
from operator import itemgetter
from typing import Any

from lab.features.values.expected import Part, compared, input_parts, is_copy, output_parts
from lab.operations import Who, reduction
from lab.record.result import Expectation
from lab.trace.clashes import clash_in
from lab.trace.model import Buffer, Call, Trace
from lab.trace.steps import Step
from lab.words import name_ranks, rank_spans

ELLIPSIS = "…"
_ALL_BUT_ZERO = 1e-20
"""Numbers below it are shown, few as they are: they are on their way to zero."""


def plain_number(value: Any) -> Any:
    """A number as JSON can say it, and as values are recorded."""
    if isinstance(value, complex):
        return [plain_number(value.real), plain_number(value.imag)]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def typed_value(value: Any, dtype: str) -> Any:
    """A recorded value as its dtype has it: JSON may write 2.0 as 2, and True as 1."""
    if isinstance(value, (list, tuple)):
        return [typed_value(part, "float32") for part in value]
    if isinstance(value, int) and dtype.startswith(("float", "bfloat")):
        return float(value)
    return bool(value) if dtype == "bool" and value is not None else value


def number_text(value: Any, digits: int = 4) -> str:
    """A recorded value in so many digits: `0.25`, `3.0`, `1.5e+06`, `True`, `1+2j`."""
    if value is None:
        return "?"
    if isinstance(value, (list, tuple)):
        imaginary = number_text(value[1], digits)
        return f"{number_text(value[0], digits)}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.{digits}g}"
    return text if any(sign in text for sign in ".en") else f"{text}.0"


def exact_text(value: Any) -> str:
    """A recorded value with all its digits."""
    return repr(value) if isinstance(value, float) else number_text(value, 17)


def texts_that_differ(one: Any, other: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to tell them apart."""
    texts = [(number_text(one, digits), number_text(other, digits)) for digits in (4, 7, 10, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def label_text(part: Part, reduce_op: str) -> str:
    """Where a part comes from or goes to, in short: `r2`, `Σ r0-r3`, `→r2`; `?` where the operation leaves it open."""
    if not part.sources:
        return "?"
    ranks = " ".join(rank_spans(part.origins, "r"))
    if part.target is not None:
        return f"→r{part.target}"
    if len(ranks) > 14:
        ranks = f"{len(part.origins)} ranks"
    return f"{reduction(reduce_op).sign} {ranks}" if part.reduced else ranks


def shape_text(dtype: str, shape: Sequence[int]) -> str:
    """`float32[2, 3]`."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def summary_text(summary: Any) -> str:
    """`norm 3.2, from -1 to 1.5`; empty where there is none."""
    if not summary:
        return ""
    parts = [f"norm {number_text(summary['norm'])}"] if "norm" in summary else []
    if "min" in summary and "max" in summary:
        parts.append(f"from {number_text(summary['min'])} to {number_text(summary['max'])}")
    if summary.get("sampled"):
        parts.append(f"by {summary['sampled']:,} samples")
    return ", ".join(parts)


def shown_of(count: int, most: int, needed: Collection[int] = (), telling: Sequence[int] = ()) -> list[int | None]:
    """Which of so many are shown, None where some are left out: the first ones, the last, and those needed.

    Besides, as many as may be shown of those that tell most, even if it takes more room. Nothing stands for one alone.
    """
    if count <= most:
        return list(range(count))
    wanted = {*sorted(set(needed))[: max(1, most - 2)], *telling[:most]}
    room = max(1, most - 1 - len(wanted))
    kept = sorted({*range(room), *wanted, count - 1})
    shown: list[int | None] = []
    for before, index in zip([-1, *kept], kept, strict=False):
        left_out = index - before - 1
        shown += [*([] if not left_out else [before + 1] if left_out == 1 else [None]), index]
    return shown


def odd_elements(values: Sequence[Any]) -> list[int]:
    """The first of each kind that is not finite, the first minus zero, the first that is all but zero."""
    found: dict[str, int] = {}
    for i, value in enumerate(values):
        if isinstance(value, str):
            found.setdefault(value, i)
        elif isinstance(value, float) and abs(value) < _ALL_BUT_ZERO and (value or copysign(1, value) < 0):
            found.setdefault("-0.0" if not value else "small", i)
    return list(found.values())


def extremes(values: Sequence[Any]) -> list[int]:
    """The least and the greatest of the numbers."""
    numbers = [(v, i) for i, v in enumerate(values) if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return [min(numbers)[1], max(numbers, key=itemgetter(0))[1]] if numbers else []


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor on one side of a call."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    """Where its elements come from, in their order."""
    values: tuple[Any, ...] | None = None
    """Its elements as recorded; None where they were not kept or do not exist yet."""
    summary: Mapping[str, Any] | None = None
    """`n`, `norm`, `min`, `max`, `hash` of one that was too large to be kept."""
    expected: tuple[Any, ...] | None = None
    """What each element ought to be; None for what nobody can say. Only on outputs."""
    wrong: tuple[int, ...] = ()
    """Elements that are not as expected."""
    wrong_hash: bool = False
    """Whether it is not the tensor that it should be a copy of, as the hashes of both tell."""
    compared: int = 0
    """Elements that were compared with what they ought to be."""
    pickled: bool = False
    """Whether these bytes are a Python object."""
    late: bool = False
    """Whether it was seen when it was no longer what the call had given, so that nobody can say what that was."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return sum(part.count for part in self.parts)

    @property
    def defined(self) -> bool:
        """Whether the operation says what this tensor holds."""
        return any(part.sources for part in self.parts)


@dataclass(frozen=True, slots=True)
class RankPicture:
    """One rank's side of it."""

    rank: int
    state: str
    """`completed`, `failed`, `unfinished`, `missing`: it never entered, or `unrecorded`: nobody can say."""
    op: str = ""
    """What it called; empty where it never entered."""
    role: str = ""
    """`source` or `destination`, where there is one."""
    before: tuple[Block, ...] = ()
    after: tuple[Block, ...] = ()
    error: str = ""
    waited_s: float | None = None
    """Seconds that it was inside before everybody had come whom it needed; None if one of them never did."""

    def tensors(self, *, after: bool) -> tuple[Block, ...]:
        """Those of one side."""
        return self.after if after else self.before

    @property
    def wrong(self) -> bool:
        """Whether it holds anything other than what the operation should have given."""
        return any(block.wrong or block.wrong_hash for block in self.after)


@dataclass(frozen=True, slots=True)
class Picture:
    """One collective or message."""

    step: Step
    ranks: tuple[RankPicture, ...]
    world_size: int
    """Of the run; it decides on colours."""
    disagreement: str
    """In what the calls of the ranks did not fit each other, a sentence; empty where they did."""
    unmet: tuple[str, ...]
    """Expectations of the scenario about notes of these ranks that were not met, a sentence each."""
    live: bool = False
    """Whether the run goes on, so that who has not come may still come."""

    @property
    def check(self) -> str:
        """`right`, `wrong`, `partly` (what could be compared is right), `unchecked`, or `nothing` to compare."""
        outputs = [block for rank in self.ranks for block in rank.after if block.count]
        blocks = [block for block in outputs if block.defined or not self.leaves_open]
        if any(rank.wrong for rank in self.ranks):
            return "wrong"
        if not blocks:
            return "nothing"
        if self.disagreement:
            return "unchecked"  # no element is known to be wrong, but what the others should be is not defined
        compared, all_of_them = sum(b.compared for b in blocks), sum(b.count for b in blocks)
        return "unchecked" if not compared else "right" if compared == all_of_them else "partly"

    @property
    def leaves_open(self) -> bool:
        """Whether the operation does not say what other ranks than its root hold afterwards."""
        op = self.step.operation
        return op.reduces and op.taker is Who.ROOT

    def rank(self, rank: int) -> RankPicture:
        """The side of one rank."""
        return next(one for one in self.ranks if one.rank == rank)

    @property
    def first(self) -> Call:
        """The call that tells where the step was called from."""
        return next(iter(self.step.calls.values()))

    @property
    def reduce_op(self) -> str:
        """`SUM`...; empty where nothing is reduced."""
        return "/".join(dict.fromkeys(c.reduce_op for c in self.step.calls.values() if c.reduce_op))

    @property
    def averages(self) -> bool:
        """Whether this sum is a mean, because DistributedDataParallel divided first what each rank brings."""
        return all(call.divided for call in self.step.calls.values())

    @property
    def sizes(self) -> tuple[int, int]:
        """The least and the most bytes that a rank gave or took."""
        sizes = [call.bytes for call in self.step.calls.values()]
        return min(sizes), max(sizes)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        step, first = self.step, self.first
        of_step = {name: getattr(step, name) for name in ("number", "title", "op", "message", "seq", "round", "state")}
        of_call = {name: getattr(first, name) for name in ("source", "function", "via", "bucket", "parameters")}
        group = {"group": step.group.label, "group_ranks": step.group.ranks, "backend": step.group.backend}
        names = ("reduce_op", "averages", "check", "world_size", "disagreement", "unmet")
        own = {name: getattr(self, name) for name in names}
        sizes = dict(zip(("least_bytes", "bytes"), self.sizes, strict=True))
        own |= {"tag": first.tag if step.message else None, "ranks": [asdict(rank) for rank in self.ranks]}
        return {**of_step, **of_call, **group, **sizes, **own}


def unrecorded_ranks(trace: Trace) -> frozenset[int]:
    """Ranks without a trace, and those whose recording ended before they did: of these, absence means nothing."""
    return frozenset(rank for rank, one in trace.ranks.items() if one.cut or not one.recorder)


def picture_of(
    step: Step,
    expectations: Sequence[Expectation] = (),
    world_size: int = 0,
    unrecorded: Collection[int] = (),
    *,
    live: bool = False,
) -> Picture:
    """The picture of a step.

    Args:
        step: the calls of all ranks that belong together.
        expectations: those of the run; the picture tells those about notes that were not met.
        world_size: ranks of the run; 0: as many as the step shows.
        unrecorded: ranks of which nobody knows whether they entered, see `unrecorded_ranks`.
        live: whether the run goes on.
    """
    clash = clash_in(step)
    checked, disagreement = clash is None or clash.comparable, ""
    if clash is not None:
        sides = "; ".join(f"{name_ranks(side)} {what}" for what, side in sorted(clash.sides, key=lambda side: side[1]))
        disagreement = f"the ranks disagree about {_DISPUTED.get(clash.kind, clash.kind)}: {sides}"
    order = (step.source, step.destination) if step.message else step.group.ranks
    ranks = list(dict.fromkeys([*(rank for rank in order if rank is not None), *step.calls]))
    roles = {step.destination: "destination", step.source: "source"}
    waited = step.waited
    return Picture(
        step=step,
        ranks=tuple(
            _rank_picture(step, rank, rank in unrecorded, roles.get(rank, ""), waited.get(rank), checked=checked)
            for rank in ranks
        ),
        world_size=max(world_size, max(ranks) + 1),
        disagreement=disagreement,
        unmet=tuple(e.sentence() for e in expectations if not e.met and e.what.startswith("note ") and e.rank in ranks),
        live=live,
    )


_DISPUTED = {"mismatch": "operations", "reduce_op": "reductions", "root": "roots", "dtype": "dtypes", "shape": "sizes"}


def _rank_picture(
    step: Step, rank: int, unrecorded: bool, role: str, waited_s: float | None, *, checked: bool
) -> RankPicture:
    call = step.calls.get(rank)
    if call is None:
        return RankPicture(rank, "unrecorded" if unrecorded else "missing", role=role)
    given = (_block(call, buffer, input_parts(step, call, i)) for i, buffer in enumerate(call.inputs))
    outputs = zip(call.outputs, output_parts(step, call), strict=True)
    taken = (_output(step, call, buffer, parts, checked=checked) for buffer, parts in outputs)
    return RankPicture(
        rank=rank,
        state=call.state,
        op=call.op,
        role=role,
        before=() if call.operation.receives else tuple(given),
        after=() if call.operation.sends else tuple(taken),
        error=call.error,
        waited_s=waited_s,
    )


def _output(step: Step, call: Call, buffer: Buffer, parts: tuple[Part, ...], *, checked: bool) -> Block:
    block = _block(call, buffer, parts)
    if call.state != "completed":  # until the end, what a call in place holds are its inputs
        return replace(block, values=None, summary=None)
    if not checked:
        return block
    if block.values is not None:
        pairs = list(compared(step, block.parts, block.dtype, block.values))
        expected = tuple(typed_value(plain_number(value), block.dtype) for value, _ in pairs)
        known = sum(value is not None for value in expected)
        wrong = tuple(i for i, (_, is_wrong) in enumerate(pairs) if is_wrong)
        block = replace(block, expected=expected if known else None, wrong=wrong, compared=known)
    elif (same := is_copy(step, buffer, parts)) is not None:
        block = replace(block, compared=buffer.count, wrong_hash=not same)
    if call.late and (block.wrong or block.wrong_hash):
        return replace(_block(call, buffer, parts), values=None, summary=None, late=True)
    return block


def _block(call: Call, buffer: Buffer, parts: tuple[Part, ...]) -> Block:
    # The functions for Python objects send their sizes first, as int64, and then the pickles, as bytes.
    pickled = buffer.dtype == "uint8" and "object" in call.via
    values = buffer.values
    if values is not None:  # where all of them are on record
        values = tuple(typed_value(v, buffer.dtype) for v in values) if len(values) == buffer.count else None
    return Block(buffer.dtype, buffer.shape, parts, values, buffer.summary, pickled=pickled)
