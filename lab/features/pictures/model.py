"""The picture of one step: what each rank had before and after, whether it is right, in sentences, and as boxes."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from math import copysign
from operator import itemgetter
from typing import Any, NamedTuple

from lab.diagnosis.wording import join_ranks
from lab.features.values.expected import Part, compared, input_parts, is_copy, output_parts
from lab.operations import Who, get_reduction
from lab.record.result import Expectation
from lab.trace.clashes import clash_in
from lab.trace.model import Buffer, Call, Trace
from lab.trace.steps import Step
from lab.words import capitalize_first, format_bytes, format_count, format_duration, name_ranks, rank_spans

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
    return f"{get_reduction(reduce_op).sign} {ranks}" if part.reduced else ranks


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
    for before, index in pairwise([-1, *kept]):
        gap: list[int | None] = [None] if index - before > 2 else [*range(before + 1, index)]
        shown += [*gap, index]
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


_MOST_WRONG = 6
_LONGEST_ERROR = 160
_AVERAGES = "DistributedDataParallel has already divided these gradients by the {whole}, so their sum is the mean."


def sentence(picture: Picture) -> str:
    """What the operation does; nothing where the ranks called different ones."""
    if several_operations(picture):
        return ""
    root = next((f"Rank {one.rank}" for one in picture.ranks if one.role), "One rank")
    does = picture.step.operation.does.format(root=root, red=get_reduction(picture.reduce_op).noun)
    return f"{does} {_AVERAGES.format(whole=_whole(picture))}" if picture.averages else does


def several_operations(picture: Picture) -> bool:
    """Whether the ranks called different operations."""
    return not picture.step.message and len({rank.op for rank in picture.ranks if rank.op}) > 1


def below_name(picture: Picture, rank: RankPicture) -> str:
    """What stands below the name of a rank: its role, or what it called where others called something else."""
    return rank.op if several_operations(picture) else rank.role


def heading(picture: Picture) -> list[str]:
    """What stands below the title: operation, group and size; place; parameters whose gradients a bucket holds."""
    step, call, group, (least, most) = picture.step, picture.first, picture.step.group, picture.sizes
    names = list(call.parameters)
    if len(names) > 6:
        names = [*names[:4], f"… {len(names) - 5} more …", names[-1]]
    is_plain = group.label.startswith("[") and group.turn == 1  # the label of one without a name: its ranks
    named = "" if is_plain else f" {group.label}"
    a_rank = "" if step.message else " a rank"
    facts = (
        picture.reduce_op + (f", already divided by {_whole(picture)}" if picture.averages else ""),
        f"tag {call.tag}" if step.message else "",
        f"round {step.round}" if step.round else "",
        "group default" if group.label == "default" else f"group{named} of {name_ranks(group.ranks)}",
        group.backend,
        f"{'at most ' if a_rank and least != most else ''}{format_bytes(most)}{a_rank}" if most else "",
        f"bucket {call.bucket} of DistributedDataParallel" if call.bucket is not None else "",
    )
    function = f" in {call.function}" if call.function not in ("", "<module>") else ""
    via = f", via {call.via}" if call.via not in ("", step.op) else ""
    lines = (
        " · ".join(filter(None, facts)),
        f"{call.source}{function}{via}" if call.source else "",
        f"gradients of {', '.join(names)}" if names else "",
    )
    return [line for line in lines if line]


def _whole(picture: Picture) -> str:
    return "world size" if picture.step.group.label == "default" else "group size"


def kind_text(picture: Picture, *, after: bool) -> str:
    """Dtype and shape of the tensors on one side: `float32[3]`, `3 × float32[1]`; of many, that they differ."""
    sides = [rank.tensors(after=after) for rank in picture.ranks]
    blocks = [block for side in sides for block in side]
    if not blocks:
        return ""
    dtypes, shapes = sorted({block.dtype for block in blocks}), {block.shape for block in blocks}
    if len(shapes) > 1:
        return f"{' or '.join(dtypes)} of several sizes"
    counts = {len(side) for side in sides if side}
    number = f"{counts.pop()} × " if len(counts) == len(dtypes) == 1 and counts != {1} else ""
    return number + shape_text(" or ".join(dtypes), shapes.pop())


def uniform(picture: Picture, *, after: bool) -> bool:
    """Whether all tensors of a side have one dtype and shape, so that it is enough to say it once."""
    sides = [rank.tensors(after=after) for rank in picture.ranks]
    return len({(block.dtype, block.shape) for side in sides for block in side}) <= 1


def absence(picture: Picture, rank: RankPicture, *, after: bool) -> str:
    """What stands on a side of a rank in place of tensors; empty where it has some."""
    if rank.state in ("missing", "unrecorded"):
        if picture.step.message:
            return _never(picture, rank) if after == (rank.role != "source") else ""
        return "–" if after else _never(picture, rank)
    if after and rank.state == "unfinished":
        return "not yet" if picture.live else "never finished"
    if after and rank.state == "failed":
        return "failed"
    return "" if picture.step.message or rank.tensors(after=after) else "nothing"


def _never(picture: Picture, rank: RankPicture) -> str:
    if rank.state == "unrecorded":
        return "not on record"
    if not picture.step.message:
        return "has not come yet" if picture.live else "never entered"
    sends = rank.role == "source"
    if picture.live:
        return "has not sent yet" if sends else "has not come yet"
    return "never sent" if sends else "never received"


_GOOD = {
    "right": "Every output is what {} of the recorded inputs gives.",
    "partly": "All outputs that could be compared with the recorded inputs are right; some could not be.",
}


def verdict(picture: Picture) -> tuple[str, str]:
    """Whether the outputs are right: `good`, `bad` or `unknown`, and a sentence; empty where nothing is there."""
    op = picture.step.op
    if picture.check == "wrong":
        wrong = sum(len(block.wrong) + block.wrong_hash for rank in picture.ranks for block in rank.after)
        ranks = name_ranks([rank.rank for rank in picture.ranks if rank.wrong])
        return "bad", f"Not what {op} of the recorded inputs gives, in {format_count(wrong, 'place')} on {ranks}."
    if picture.check in _GOOD:
        return "good", _GOOD[picture.check].format(op)
    if picture.check == "nothing" or (picture.live and picture.step.state == "unfinished"):
        return "", ""
    return "unknown", f"Outputs were not compared with inputs: {_why_unchecked(picture)}."


def _why_unchecked(picture: Picture) -> str:
    step = picture.step
    blocks = [block for rank in picture.ranks for block in (*rank.before, *rank.after)]
    reasons = (
        (picture.disagreement, "the calls do not fit each other"),
        (not step.operation.does, f"what {step.op} does is not known here"),
        (any(rank.state == "unrecorded" for rank in picture.ranks), "not all inputs are on record"),
        (step.state != "completed", "not every rank finished it"),
        (picture.reduce_op == "PREMUL_SUM", "the factor is not on record"),
        (any(block.late for block in blocks), "they were seen too late, when they might be changed already"),
        (
            any(block.values is None for block in blocks),
            "the tensors were too large for their values to be kept (see lab run --trace-values)",
        ),
    )
    return next((sentence for holds, sentence in reasons if holds), "not all inputs are on record")


def remarks(picture: Picture) -> list[str]:
    """What else there is to say, the important first."""
    ranks_in: dict[str, list[int]] = defaultdict(list)
    for rank in picture.ranks:
        ranks_in[rank.state].append(rank.rank)
    sentences = [f"{capitalize_first(picture.disagreement)}."] if picture.disagreement else []
    if missing := ranks_in["missing"]:
        verb = _never(picture, picture.rank(missing[0]))
        verb = verb if len(missing) == 1 else verb.replace("has", "have")
        sentences.append(f"{capitalize_first(name_ranks(missing))} {verb}.")
    if unrecorded := ranks_in["unrecorded"]:
        sentences.append(f"What {name_ranks(unrecorded)} did is not on record.")
    if (unfinished := ranks_in["unfinished"]) and not picture.live:
        sentences.append(f"{capitalize_first(name_ranks(unfinished))} never finished.")
    first_lines = ((rank.rank, rank.error.splitlines()[0]) for rank in picture.ranks if rank.error)
    errors = ((rank, textwrap.shorten(line, _LONGEST_ERROR, placeholder=" …")) for rank, line in first_lines)
    sentences += [
        capitalize_first(clause) for clause in join_ranks((rank, f"failed: {error}") for rank, error in errors)
    ]
    sentences += _wrong_elements(picture)
    if any(block.pickled for rank in picture.ranks for block in (*rank.before, *rank.after)):
        sentences.append(
            "These bytes are Python objects, pickled; where they differ in length, the shorter are padded."
        )
    undefined = [r.rank for r in picture.ranks if r.after and not any(block.defined for block in r.after)]
    if undefined and picture.leaves_open and not missing:
        verb = "holds" if len(undefined) == 1 else "hold"
        sentences.append(f"What {name_ranks(undefined)} {verb} afterwards is not defined.")
    return sentences + [f"Expected by the scenario, and not met: {text}" for text in picture.unmet]


def _wrong_elements(picture: Picture) -> list[str]:
    places = [(rank, i, block, k) for rank in picture.ranks for i, block in enumerate(rank.after) for k in block.wrong]
    sentences = []
    for rank, index, block, element in places[:_MOST_WRONG]:
        got, expected = texts_that_differ((block.values or ())[element], (block.expected or ())[element])
        tensor = f"tensor {index}, " if len(rank.after) > 1 else ""
        because = _because(picture, block, element)
        sentences.append(f"Rank {rank.rank}, {tensor}element {element}: {got}, but it should be {expected}{because}.")
    if len(places) > _MOST_WRONG:
        sentences.append(f"And {len(places) - _MOST_WRONG} more: see --json.")
    copies = (
        (rank.rank, block.parts[0].origins[0]) for rank in picture.ranks for block in rank.after if block.wrong_hash
    )
    not_copy = "Rank {} holds a tensor that is not a copy of rank {}'s: their hashes differ."
    return sentences + [not_copy.format(rank, origin) for rank, origin in copies]


def _because(picture: Picture, block: Block, element: int) -> str:
    """Where the expected value comes from: ` = 2.0 (rank 0) + 3.0 (rank 1)`."""
    ends = list(accumulate(part.count for part in block.parts))
    at = bisect_right(ends, element)
    if at == len(ends):
        return ""
    part = block.parts[at]
    element -= ends[at] - part.count
    inputs = []
    for source in part.sources:
        values = picture.rank(source.rank).before[source.tensor].values or ()
        if source.start + element >= len(values):  # it is not on record
            return ""
        inputs.append((number_text(values[source.start + element]), source.rank))
    if not part.reduced:
        return f", from rank {inputs[0][1]}"
    if picture.reduce_op == "SUM" and len(inputs) <= 4:
        return " = " + " + ".join(f"{value} (rank {rank})" for value, rank in inputs)
    shown = ["…" if i is None else inputs[i][0] for i in shown_of(len(inputs), 8)]
    return f": the {get_reduction(picture.reduce_op).noun} of {', '.join(shown)}"


def rows(picture: Picture, most: int) -> list[RankPicture | str]:
    """The ranks to be drawn; of too many, those where something is to be seen, and words in place of the others."""
    ranks = picture.ranks
    needed = [i for i, rank in enumerate(ranks) if rank.role or rank.wrong or rank.state != "completed"]
    kept = [index for index in shown_of(len(ranks), most, needed) if index is not None]
    drawn: list[RankPicture | str] = []
    for before, index in pairwise([-1, *kept]):
        if left_out := ranks[before + 1 : index]:
            drawn.append(f"{ELLIPSIS} {name_ranks(rank.rank for rank in left_out)}")
        drawn.append(ranks[index])
    return drawn


def waits(picture: Picture) -> list[tuple[int, str, float]]:
    """Rank, how long it waited for the last one in words, and as a share of the longest wait."""
    longest = max((rank.waited_s or 0.0 for rank in picture.ranks), default=0.0)
    bars = []
    for rank in picture.ranks:
        share = float(bool(rank.op))
        if picture.live and picture.step.state == "unfinished":
            text = "has come" if rank.op else _never(picture, rank)
        elif rank.waited_s is None:
            text = "failed" if rank.error else "waited in vain" if rank.op else _never(picture, rank)
        else:
            text = f"waited {format_duration(rank.waited_s)}" if rank.waited_s else "came last"
            share = rank.waited_s / (longest or 1.0)
        bars.append((rank.rank, text, share))
    return bars


_MOST_TOLD = 1000
"""Elements of a part that its description lists, however many are drawn."""


class Cell(NamedTuple):
    """One value, or what stands for several."""

    text: str
    """With a sign before it where it is wrong."""
    wrong: bool = False


class Box(NamedTuple):
    """Part of a tensor."""

    part: Part
    label: str
    cells: tuple[Cell, ...]
    block: Block
    start: int
    """Its first element in the tensor."""

    @property
    def told(self) -> str:
        """All its elements with all their digits, and what they should be; or what is known of them."""
        block, count = self.block, self.part.count
        what = shape_text(block.dtype, block.shape)
        if block.pickled or block.values is None:
            return ", ".join(filter(None, [what, summary_text(block.summary)]))
        told = range(self.start, self.start + min(count, _MOST_TOLD))
        values = " ".join(exact_text(block.values[i]) for i in told)
        rest = f" and {count - len(told):,} more" if count > len(told) else ""
        where = "" if count == block.count else f", {format_count(count, 'element')} from number {self.start} on"
        expected = block.expected or ()
        should = [f"element {i} should be {exact_text(expected[i])}" for i in block.wrong if i in told]
        return "\n".join([f"{what}{where}: {values}{rest}", *should])


class Tensor(NamedTuple):
    """A tensor of a rank."""

    boxes: list[Box | None]
    """None: in place of parts that are not shown."""
    notes: list[tuple[str, str]]
    """Lines below: `kind`, `summary`, `bad` or `good`, and text."""


class Form(NamedTuple):
    """How much is shown, and how."""

    values: int
    """Of a part."""
    boxes: int
    """Parts of a tensor, and tensors of a rank."""
    stacked: bool = False
    """First all ranks before, then all ranks after; else side by side."""
    wrapped: bool = False
    """Whether what does not fit in a line goes on in the next one."""


class Contents:
    """What there is to be shown of so many ranks of a picture, in whatever form."""

    def __init__(self, picture: Picture, most_ranks: int) -> None:
        self.picture = picture
        self.rows = rows(picture, most_ranks)
        self.ranks = [row for row in self.rows if not isinstance(row, str)]
        parts: dict[tuple[int, int, int], list[tuple[Block, Sequence[Any]]]] = defaultdict(list)
        for rank in self.ranks:
            for after in (False, True):
                for number, block in enumerate(_blocks(picture, rank, after=after)):
                    starts = accumulate((part.count for part in block.parts), initial=0)
                    for part, start in zip(block.parts, starts, strict=False):
                        if part.count > 2 and block.values is not None and not block.pickled:
                            parts[number, start, part.count].append((block, block.values[start : start + part.count]))
        self._telling: dict[tuple[int, int, int], tuple[int, list[int], list[int]]] = {}
        """By number of the tensor, first element and number of elements of a part: how many elements are not finite or
        not quite zero in any rank's tensor, these with the extremes, and those that are wrong."""
        for (number, start, count), alike in parts.items():
            odd, most = (
                [i for same in zip_longest(*(which(values) for _, values in alike)) for i in same if i is not None]
                for which in (odd_elements, extremes)
            )  # the first of each tensor, then the second of each
            wrong = [i - start for block, _ in alike for i in block.wrong if 0 <= i - start < count]
            self._telling[number, start, count] = len(set(odd)), [*dict.fromkeys([*odd, *most])], wrong

    def tells(self, values: int) -> bool:
        """Whether all that is not finite, or not quite zero, is among so many elements of a part."""
        return all(odd <= values for (*_, count), (odd, *_) in self._telling.items() if count > values)

    def tensors(self, rank: RankPicture, form: Form, *, after: bool) -> list[Tensor | None]:
        """The tensors on one side of a rank; None in place of those that are not shown."""
        blocks = _blocks(self.picture, rank, after=after)
        wrong = [i for i, block in enumerate(blocks) if block.wrong or block.wrong_hash]
        shown = shown_of(len(blocks), form.boxes, wrong)
        return [None if i is None else self._tensor(blocks[i], i, form, after=after) for i in shown]

    def _tensor(self, block: Block, number: int, form: Form, *, after: bool) -> Tensor:
        starts = list(accumulate((part.count for part in block.parts), initial=0))
        wrong = {bisect_right(starts, element) - 1 for element in block.wrong}
        shown = shown_of(len(block.parts), form.boxes, wrong)
        boxes = [None if i is None else self._box(block, block.parts[i], number, starts[i], form.values) for i in shown]
        return Tensor(boxes, [note for note in _notes(self.picture, block, form, after=after) if note[1]])

    def _box(self, block: Block, part: Part, number: int, start: int, most: int) -> Box:
        elements: Sequence[int | None] = range(part.count)
        if telling := self._telling.get((number, start, part.count)):
            elements = shown_of(part.count, most, telling[2], telling[1])
        return Box(part, label_text(part, self.picture.reduce_op), _cells(block, part, start, elements), block, start)


def _blocks(picture: Picture, rank: RankPicture, *, after: bool) -> tuple[Block, ...]:
    return () if absence(picture, rank, after=after) else rank.tensors(after=after)


def _cells(block: Block, part: Part, start: int, elements: Sequence[int | None]) -> tuple[Cell, ...]:
    if not part.count:
        return (Cell("empty"),)
    if block.pickled:
        cells = [(f"pickle, {part.count} B", bool(block.wrong or block.wrong_hash))]
    elif block.values is None:
        cells = [(format_count(part.count, "element"), block.wrong_hash)]
    else:
        wrong = {element - start for element in block.wrong}
        cells = [(ELLIPSIS if i is None else number_text(block.values[start + i]), i in wrong) for i in elements]
    return tuple(Cell(f"✘{text}" if wrong else text, wrong) for text, wrong in cells)


def _notes(picture: Picture, block: Block, form: Form, *, after: bool) -> list[tuple[str, str]]:
    notes = []
    if block.values is None:
        notes.append(("kind", "" if uniform(picture, after=after) else shape_text(block.dtype, block.shape)))
        notes.append(("summary", "seen too late" if block.late else summary_text(block.summary)))
    if block.wrong_hash:
        notes.append(("bad", "✘ another tensor"))
    if block.wrong and block.expected is not None:
        shown = shown_of(len(block.expected), form.values, block.wrong)
        texts = [ELLIPSIS if i is None else number_text(block.expected[i]) for i in shown]
        notes.append(("good", f"should be {' '.join(texts)}"))
    return notes
