"""The model of a picture of one step: each rank's tensors, whether they are right, and texts about them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from math import copysign
from typing import Any, NamedTuple

from lab.diagnosis.errors import shorten_error
from lab.diagnosis.wording import join_ranks
from lab.features.values.expected import Part, clash_in, compare_values, input_parts, is_copy, output_parts
from lab.operations import Who, get_reduction
from lab.record.result import Expectation
from lab.trace.model import Buffer, Call, Trace
from lab.trace.steps import Step
from lab.words import capitalize_first, format_bytes, format_count, format_duration, group_pairs, name_ranks, rank_spans

ELLIPSIS = "…"


def plain_number(value: Any) -> Any:
    """Return a number in the form in which JSON and recorded values have it."""
    if isinstance(value, complex):
        return [plain_number(value.real), plain_number(value.imag)]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def typed_value(value: Any, dtype: str) -> Any:
    """Convert a recorded value to the Python type of its dtype: JSON may write 2.0 as 2, and True as 1."""
    if isinstance(value, (list, tuple)):
        return [typed_value(part, "float32") for part in value]
    if isinstance(value, int) and dtype.startswith(("float", "bfloat")):
        return float(value)
    return bool(value) if dtype == "bool" and value is not None else value


def number_text(value: Any, digits: int = 4) -> str:
    """Render a recorded value with this many digits: `0.25`, `3.0`, `1.5e+06`, `True`, `1+2j`."""
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
    """Render a recorded value with all its digits."""
    return repr(value) if isinstance(value, float) else number_text(value, 17)


def texts_that_differ(one: Any, other: Any) -> tuple[str, str]:
    """Render two values with as many digits as it takes to distinguish them."""
    texts = [(number_text(one, digits), number_text(other, digits)) for digits in (4, 7, 10, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def label_text(part: Part, reduce_op: str) -> str:
    """Render where a part comes from or goes to: `r2`, `Σ r0-r3`, `→r2`; `?` if the operation does not define it."""
    if not part.sources:
        return "?"
    ranks = " ".join(rank_spans(part.origins, "r"))
    if part.target is not None:
        return f"→r{part.target}"
    if len(ranks) > 14:
        ranks = f"{len(part.origins)} ranks"
    return f"{get_reduction(reduce_op).sign} {ranks}" if part.reduced else ranks


def shape_text(dtype: str, shape: Sequence[int]) -> str:
    """Render `float32[2, 3]`."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def summary_text(summary: Any) -> str:
    """Render `norm 3.2, from -1 to 1.5`; empty without a summary."""
    if not summary:
        return ""
    parts = [f"norm {number_text(summary['norm'])}"] if "norm" in summary else []
    if "min" in summary and "max" in summary:
        parts.append(f"from {number_text(summary['min'])} to {number_text(summary['max'])}")
    if summary.get("sampled"):
        parts.append(f"by {summary['sampled']:,} samples")
    return ", ".join(parts)


def choose_shown(count: int, most: int, needed: Collection[int] = ()) -> list[int | None]:
    """Choose the indices to show, None for a gap: the first ones, the last, and as many as possible that are needed.

    A gap never stands for one alone.
    """
    if count <= most:
        return list(range(count))
    required = set(sorted(needed)[: max(1, most - 2)])
    indices = sorted({*range(max(1, most - 1 - len(required))), *required, count - 1})
    shown: list[int | None] = []
    for before, index in pairwise([-1, *indices]):
        gap: list[int | None] = [None] if index - before > 2 else [*range(before + 1, index)]
        shown += [*gap, index]
    return shown


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor on one side of a call."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    """The origins of its elements, in their order."""
    values: tuple[Any, ...] | None = None
    """Its elements as recorded; None if they were not recorded or do not exist yet."""
    summary: Mapping[str, Any] | None = None
    """`n`, `norm`, `min`, `max`, `hash` of a tensor that was too large to be recorded."""
    expected: tuple[Any, ...] | None = None
    """The expected value of each element; None for an unknown one. Only for outputs."""
    mismatches: tuple[int, ...] = ()
    """Elements that are not as expected."""
    hash_differs: bool = False
    """Whether its hash shows that it is not the copy that it should be."""
    compared: int = 0
    """Number of elements that were compared with their expected values."""
    pickled: bool = False
    """Whether these bytes are a Python object."""
    late: bool = False
    """Whether it was recorded too late, when the script may have changed it already."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return sum(part.count for part in self.parts)

    @property
    def defined(self) -> bool:
        """Whether the operation defines what this tensor holds."""
        return any(part.sources for part in self.parts)


@dataclass(frozen=True, slots=True)
class RankPicture:
    """One rank's part of a step."""

    rank: int
    state: str
    """`completed`, `failed`, `unfinished`, `missing` (it never entered), or `unrecorded` (unknown)."""
    op: str = ""
    """The operation that it called; empty if it never entered."""
    role: str = ""
    """`source` or `destination`; empty if there is none."""
    before: tuple[Block, ...] = ()
    after: tuple[Block, ...] = ()
    error: str = ""
    waited_s: float | None = None
    """Seconds that it waited for the ranks that it needed; None if one of them is missing."""

    def tensors(self, *, after: bool) -> tuple[Block, ...]:
        """Return the tensors of one side."""
        return self.after if after else self.before

    @property
    def has_mismatch(self) -> bool:
        """Whether its data differs from the operation's expected result."""
        return any(block.mismatches or block.hash_differs for block in self.after)


@dataclass(frozen=True, slots=True)
class Picture:
    """One collective or message."""

    step: Step
    ranks: tuple[RankPicture, ...]
    world_size: int
    """Ranks of the run, which determine the colors."""
    disagreement: str
    """A sentence about the mismatch between the calls of the ranks; empty if they match."""
    unmet: tuple[str, ...]
    """The unmet expectations about notes of these ranks, a sentence each."""
    live: bool = False
    """Whether the run is in progress, so that absent ranks may still enter."""

    @property
    def check(self) -> str:
        """`right`, `wrong`, `partly` (what could be compared is right), `unchecked`, or `nothing` to compare."""
        outputs = [block for rank in self.ranks for block in rank.after if block.count]
        blocks = [block for block in outputs if block.defined or not self.leaves_open]
        if any(rank.has_mismatch for rank in self.ranks):
            return "wrong"
        if not blocks:
            return "nothing"
        if self.disagreement:
            return "unchecked"  # no element has a known mismatch, but the operation does not define the others
        compared_count, total = sum(b.compared for b in blocks), sum(b.count for b in blocks)
        return "unchecked" if not compared_count else "right" if compared_count == total else "partly"

    @property
    def leaves_open(self) -> bool:
        """Whether the operation does not define what ranks other than its root hold afterwards."""
        op = self.step.operation
        return op.reduces and op.taker is Who.ROOT

    def rank(self, rank: int) -> RankPicture:
        """Return the part of one rank."""
        return next(one for one in self.ranks if one.rank == rank)

    @property
    def first(self) -> Call:
        """The call that shows where the step was called from."""
        return next(iter(self.step.calls.values()))

    @property
    def reduce_op(self) -> str:
        """`SUM`...; empty without a reduction."""
        return "/".join(dict.fromkeys(c.reduce_op for c in self.step.calls.values() if c.reduce_op))

    @property
    def averages(self) -> bool:
        """Whether this sum is a mean, because DistributedDataParallel divided each rank's gradients first."""
        return all(call.divided for call in self.step.calls.values())

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest number of bytes that a rank sent or received."""
        sizes = [call.bytes for call in self.step.calls.values()]
        return min(sizes), max(sizes)

    def to_json(self) -> dict[str, Any]:
        """Return the picture as plain data."""
        step, first = self.step, self.first
        of_step = {name: getattr(step, name) for name in ("number", "title", "op", "message", "seq", "round", "state")}
        of_call = {name: getattr(first, name) for name in ("source", "function", "via", "bucket", "parameters")}
        group = {"group": step.group.label, "group_ranks": step.group.ranks, "backend": step.group.backend}
        names = ("reduce_op", "averages", "check", "world_size", "disagreement", "unmet")
        own = {name: getattr(self, name) for name in names}
        sizes = dict(zip(("least_bytes", "bytes"), self.sizes, strict=True))
        own["tag"] = first.tag if step.message else None
        own["ranks"] = [asdict(rank, dict_factory=_json_fields) for rank in self.ranks]
        return {**of_step, **of_call, **group, **sizes, **own}


def _json_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = {"mismatches": "wrong", "hash_differs": "wrong_hash"}  # JSON keys that scripts of users read
    return {keys.get(name, name): value for name, value in fields}


def unrecorded_ranks(trace: Trace) -> frozenset[int]:
    """Return ranks without a complete trace: that such a rank is absent from a step means nothing."""
    return frozenset(rank for rank, one in trace.ranks.items() if one.cut or not one.recorder)


def picture_of(
    step: Step,
    expectations: Sequence[Expectation] = (),
    world_size: int = 0,
    unrecorded: Collection[int] = (),
    *,
    live: bool = False,
) -> Picture:
    """Build the picture of a step.

    Args:
        step: The calls of all ranks that belong together.
        expectations: The expectations of the run; the picture lists unmet ones about notes.
        world_size: Ranks of the run; 0: as many as the step shows.
        unrecorded: Ranks for which it is unknown whether they entered, see `unrecorded_ranks`.
        live: Whether the run is in progress.
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
    if (call := step.calls.get(rank)) is None:
        return RankPicture(rank, "unrecorded" if unrecorded else "missing", role=role)
    inputs = (_block(call, buffer, input_parts(step, call, i)) for i, buffer in enumerate(call.inputs))
    buffers = zip(call.outputs, output_parts(step, call), strict=True)
    outputs = (_output(step, call, buffer, parts, checked=checked) for buffer, parts in buffers)
    return RankPicture(
        rank=rank,
        state=call.state,
        op=call.op,
        role=role,
        before=() if call.operation.receives else tuple(inputs),
        after=() if call.operation.sends else tuple(outputs),
        error=call.error,
        waited_s=waited_s,
    )


def _output(step: Step, call: Call, buffer: Buffer, parts: tuple[Part, ...], *, checked: bool) -> Block:
    block = _block(call, buffer, parts)
    if call.state != "completed":  # until it completes, the output of an in-place call holds the inputs
        return replace(block, values=None, summary=None)
    if not checked:
        return block
    if block.values is not None:
        pairs = list(compare_values(step, block.parts, block.dtype, block.values))
        expected = tuple(typed_value(plain_number(value), block.dtype) for value, _ in pairs)
        known_count = sum(value is not None for value in expected)
        mismatches = tuple(i for i, (_, is_mismatch) in enumerate(pairs) if is_mismatch)
        block = replace(block, expected=expected if known_count else None, mismatches=mismatches, compared=known_count)
    elif (is_equal := is_copy(step, buffer, parts)) is not None:
        block = replace(block, compared=buffer.count, hash_differs=not is_equal)
    if call.late and (block.mismatches or block.hash_differs):
        return replace(_block(call, buffer, parts), values=None, summary=None, late=True)
    return block


def _block(call: Call, buffer: Buffer, parts: tuple[Part, ...]) -> Block:
    # The functions for Python objects send their sizes first, as int64, and then the pickles, as bytes.
    pickled = buffer.dtype == "uint8" and "object" in call.via
    values = buffer.values
    if values is not None:  # only if all of them were recorded
        values = tuple(typed_value(v, buffer.dtype) for v in values) if len(values) == buffer.count else None
    return Block(buffer.dtype, buffer.shape, parts, values, buffer.summary, pickled=pickled)


_MAX_MISMATCHES = 6
_AVERAGES = "DistributedDataParallel has already divided these gradients by the {whole}, so their sum is the mean."


def describe_operation(picture: Picture) -> str:
    """Return a sentence that says what the operation does; empty if the ranks called different operations."""
    if has_mixed_operations(picture):
        return ""
    root = next((f"Rank {one.rank}" for one in picture.ranks if one.role), "One rank")
    sentence = picture.step.operation.does.format(root=root, red=get_reduction(picture.reduce_op).noun)
    return f"{sentence} {_AVERAGES.format(whole=_whole(picture))}" if picture.averages else sentence


def has_mixed_operations(picture: Picture) -> bool:
    """Return whether the ranks called different operations."""
    return not picture.step.message and len({rank.op for rank in picture.ranks if rank.op}) > 1


def below_name(picture: Picture, rank: RankPicture) -> str:
    """Return the text below the name of a rank: its role, or its operation if the ranks called different ones."""
    return rank.op if has_mixed_operations(picture) else rank.role


def render_heading(picture: Picture) -> list[str]:
    """Return the lines below the title: operation, group, size; source location; parameters of a gradient bucket."""
    step, call, group, (least, most) = picture.step, picture.first, picture.step.group, picture.sizes
    names = list(call.parameters)
    if len(names) > 6:
        names = [*names[:4], f"… {len(names) - 5} more …", names[-1]]
    is_plain = group.label.startswith("[") and group.turn == 1  # the label of a group without a name is its ranks
    name = "" if is_plain else f" {group.label}"
    per_rank = "" if step.message else " a rank"
    facts = (
        picture.reduce_op + (f", already divided by {_whole(picture)}" if picture.averages else ""),
        f"tag {call.tag}" if step.message else "",
        f"round {step.round}" if step.round else "",
        "group default" if group.label == "default" else f"group{name} of {name_ranks(group.ranks)}",
        group.backend,
        f"{'at most ' if per_rank and least != most else ''}{format_bytes(most)}{per_rank}" if most else "",
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
    """Render dtype and shape of the tensors on one side: `float32[3]`, `3 × float32[1]`; or that the sizes differ."""
    sides = [rank.tensors(after=after) for rank in picture.ranks]
    if not (blocks := [block for side in sides for block in side]):
        return ""
    dtypes, shapes = sorted({block.dtype for block in blocks}), {block.shape for block in blocks}
    if len(shapes) > 1:
        return f"{' or '.join(dtypes)} of several sizes"
    counts = {len(side) for side in sides if side}
    number = f"{counts.pop()} × " if len(counts) == len(dtypes) == 1 and counts != {1} else ""
    return number + shape_text(" or ".join(dtypes), shapes.pop())


def is_uniform(picture: Picture, *, after: bool) -> bool:
    """Return whether all tensors of a side have one dtype and shape, so that one label is enough."""
    sides = [rank.tensors(after=after) for rank in picture.ranks]
    return len({(block.dtype, block.shape) for side in sides for block in side}) <= 1


def describe_absence(picture: Picture, rank: RankPicture, *, after: bool) -> str:
    """Return the text on a side of a rank without tensors; empty if it has some."""
    if rank.state in ("missing", "unrecorded"):
        if picture.step.message:
            return _describe_missing(picture, rank) if after == (rank.role != "source") else ""
        return "–" if after else _describe_missing(picture, rank)
    if after and rank.state == "unfinished":
        return "not yet" if picture.live else "never finished"
    if after and rank.state == "failed":
        return "failed"
    return "" if picture.step.message or rank.tensors(after=after) else "nothing"


def _describe_missing(picture: Picture, rank: RankPicture) -> str:
    if rank.state == "unrecorded":
        return "not recorded"
    if not picture.step.message:
        return "has not entered yet" if picture.live else "never entered"
    sends = rank.role == "source"
    if picture.live:
        return "has not sent yet" if sends else "has not entered yet"
    return "never sent" if sends else "never received"


_GOOD = {
    "right": "Every output is the {} of the recorded inputs.",
    "partly": "All outputs that the lab could compare with the recorded inputs are right.",
}


def judge_outputs(picture: Picture) -> tuple[str, str]:
    """Return whether the outputs are right: `good`, `bad`, or `unknown`, and a sentence; empty without outputs."""
    op = picture.step.op
    if picture.check == "wrong":
        count = sum(len(block.mismatches) + block.hash_differs for rank in picture.ranks for block in rank.after)
        ranks = name_ranks([rank.rank for rank in picture.ranks if rank.has_mismatch])
        return "bad", f"Not the {op} of the recorded inputs, in {format_count(count, 'element')} on {ranks}."
    if picture.check in _GOOD:
        return "good", _GOOD[picture.check].format(op)
    if picture.check == "nothing" or (picture.live and picture.step.state == "unfinished"):
        return "", ""
    return "unknown", f"The lab did not compare outputs with inputs: {_explain_unchecked(picture)}."


def _explain_unchecked(picture: Picture) -> str:
    step = picture.step
    blocks = [block for rank in picture.ranks for block in (*rank.before, *rank.after)]
    reasons = (
        (picture.disagreement, "the calls do not match each other"),
        (not step.operation.does, f"the lab does not know the result of {step.op}"),
        (any(rank.state == "unrecorded" for rank in picture.ranks), "not all inputs are in the record"),
        (step.state != "completed", "not every rank finished it"),
        (picture.reduce_op == "PREMUL_SUM", "the factor is not in the record"),
        (any(block.late for block in blocks), "the recorder read them too late, after a possible change"),
        (
            any(block.values is None for block in blocks),
            "the recorder did not keep values of such large tensors (see lab run --trace-values)",
        ),
    )
    return next((reason for holds, reason in reasons if holds), "not all inputs are in the record")


def list_remarks(picture: Picture) -> list[str]:
    """Return further sentences about the step, the important ones first."""
    ranks_in = defaultdict(list, group_pairs((rank.state, rank.rank) for rank in picture.ranks))
    sentences = [f"{capitalize_first(picture.disagreement)}."] if picture.disagreement else []
    if missing := ranks_in["missing"]:
        verb = _describe_missing(picture, picture.rank(missing[0]))
        verb = verb if len(missing) == 1 else verb.replace("has", "have")
        sentences.append(f"{capitalize_first(name_ranks(missing))} {verb}.")
    if unrecorded := ranks_in["unrecorded"]:
        sentences.append(f"The record has no calls of {name_ranks(unrecorded)}.")
    if (unfinished := ranks_in["unfinished"]) and not picture.live:
        sentences.append(f"{capitalize_first(name_ranks(unfinished))} never finished.")
    errors = ((rank.rank, shorten_error(rank.error, tuple, brief=True)) for rank in picture.ranks if rank.error)
    sentences += map(capitalize_first, join_ranks((rank, f"failed: {error}") for rank, error in errors))
    sentences += _describe_mismatches(picture)
    if any(block.pickled for rank in picture.ranks for block in (*rank.before, *rank.after)):
        sentences.append("These bytes are Python objects, pickled; PyTorch pads the shorter ones.")
    undefined = [r.rank for r in picture.ranks if r.after and not any(block.defined for block in r.after)]
    if undefined and picture.leaves_open and not missing:
        verb = "holds" if len(undefined) == 1 else "hold"
        sentences.append(f"The operation does not define what {name_ranks(undefined)} {verb} afterwards.")
    return sentences + [f"The scenario's expectation is not met: {text}" for text in picture.unmet]


def _describe_mismatches(picture: Picture) -> list[str]:
    blocks = [(rank, i, block) for rank in picture.ranks for i, block in enumerate(rank.after)]
    unequal = [(rank, i, block, k) for rank, i, block in blocks for k in block.mismatches]
    sentences = []
    for rank, index, block, element in unequal[:_MAX_MISMATCHES]:
        got, expected = texts_that_differ((block.values or ())[element], (block.expected or ())[element])
        tensor = f"tensor {index}, " if len(rank.after) > 1 else ""
        sentences.append(f"Rank {rank.rank}, {tensor}element {element}: {got}, but it should be {expected}.")
    if len(unequal) > _MAX_MISMATCHES:
        sentences.append(f"And {len(unequal) - _MAX_MISMATCHES} more: see --json.")
    copies = ((rank.rank, block.parts[0].origins[0]) for rank, _, block in blocks if block.hash_differs)
    not_copy = "Rank {} holds a tensor that is not a copy of rank {}'s: their hashes differ."
    return sentences + [not_copy.format(rank, origin) for rank, origin in copies]


def choose_rows(picture: Picture, most: int) -> list[RankPicture | str]:
    """Return the ranks to draw; of too many, the interesting ones, and texts in place of the others."""
    ranks = picture.ranks
    needed = [i for i, rank in enumerate(ranks) if rank.role or rank.has_mismatch or rank.state != "completed"]
    indices = [index for index in choose_shown(len(ranks), most, needed) if index is not None]
    drawn: list[RankPicture | str] = []
    for before, index in pairwise([-1, *indices]):
        if left_out := ranks[before + 1 : index]:
            drawn.append(f"{ELLIPSIS} {name_ranks(rank.rank for rank in left_out)}")
        drawn.append(ranks[index])
    return drawn


def list_waits(picture: Picture) -> list[tuple[int, str, float]]:
    """Return for each rank its wait for the last one in words, and as a share of the longest wait."""
    longest = max((rank.waited_s or 0.0 for rank in picture.ranks), default=0.0)
    bars = []
    for rank in picture.ranks:
        share = float(bool(rank.op))
        if picture.live and picture.step.state == "unfinished":
            text = "entered" if rank.op else _describe_missing(picture, rank)
        elif rank.waited_s is None:
            text = "failed" if rank.error else "waited until the end" if rank.op else _describe_missing(picture, rank)
        else:
            text = f"waited {format_duration(rank.waited_s)}" if rank.waited_s else "entered last"
            share = rank.waited_s / (longest or 1.0)
        bars.append((rank.rank, text, share))
    return bars


_MAX_LISTED = 1000
"""The number of elements of a part that its tooltip lists, however many are drawn."""


class Cell(NamedTuple):
    """One value, or a text for several."""

    text: str
    """With a sign before it if it is a mismatch."""
    is_mismatch: bool = False


class Box(NamedTuple):
    """Part of a tensor."""

    part: Part
    label: str
    cells: tuple[Cell, ...]
    block: Block
    start: int
    """Index of its first element in the tensor."""

    @property
    def tooltip(self) -> str:
        """All elements with all digits, and their expected values; or the summary."""
        block, count = self.block, self.part.count
        what = shape_text(block.dtype, block.shape)
        if block.pickled or block.values is None:
            return ", ".join(filter(None, [what, summary_text(block.summary)]))
        listed = range(self.start, self.start + min(count, _MAX_LISTED))
        values = " ".join(exact_text(block.values[i]) for i in listed)
        rest = f" and {count - len(listed):,} more" if count > len(listed) else ""
        range_text = "" if count == block.count else f", {format_count(count, 'element')} from number {self.start} on"
        expected = block.expected or ()
        should = [f"element {i} should be {exact_text(expected[i])}" for i in block.mismatches if i in listed]
        return "\n".join([f"{what}{range_text}: {values}{rest}", *should])


class Tensor(NamedTuple):
    """A tensor of a rank."""

    boxes: list[Box | None]
    """None for a gap."""
    notes: list[tuple[str, str]]
    """Lines below: `kind`, `summary`, `bad` or `good`, and text."""


class Form(NamedTuple):
    """How much a drawing shows, and in which layout."""

    values: int
    """Values of a part."""
    boxes: int
    """Parts of a tensor, and tensors of a rank."""
    stacked: bool = False
    """Whether all ranks before the call come above all ranks after it; otherwise both sides share a row."""
    wrapped: bool = False
    """Whether parts that do not fit in a line continue in the next one."""


class Contents:
    """The contents of a picture for a limited number of ranks, independent of the form."""

    def __init__(self, picture: Picture, most_ranks: int) -> None:
        self.picture = picture
        self.rows = choose_rows(picture, most_ranks)
        self.ranks = [row for row in self.rows if not isinstance(row, str)]
        self._needed: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        """For a part, given by the number of its tensor, its first element, and its number of elements: those that are
        wrong, not finite, or minus zero on any rank."""
        for rank in self.ranks:
            for number, block in [*enumerate(rank.before), *enumerate(rank.after)]:
                special = [*block.mismatches, *(i for i, v in enumerate(block.values or ()) if _is_special(v))]
                starts = accumulate((part.count for part in block.parts), initial=0)
                for part, start in zip(block.parts, starts, strict=False):
                    within = {i - start for i in special if 0 <= i - start < part.count}
                    self._needed[number, start, part.count] |= within

    def tensors(self, rank: RankPicture, form: Form, *, after: bool) -> list[Tensor | None]:
        """Return the tensors on one side of a rank; None for a gap."""
        blocks = _blocks(self.picture, rank, after=after)
        mismatches = [i for i, block in enumerate(blocks) if block.mismatches or block.hash_differs]
        shown = choose_shown(len(blocks), form.boxes, mismatches)
        return [None if i is None else self._tensor(blocks[i], i, form, after=after) for i in shown]

    def _tensor(self, block: Block, number: int, form: Form, *, after: bool) -> Tensor:
        starts = list(accumulate((part.count for part in block.parts), initial=0))
        mismatches = {bisect_right(starts, element) - 1 for element in block.mismatches}
        shown = choose_shown(len(block.parts), form.boxes, mismatches)
        boxes = [None if i is None else self._box(block, block.parts[i], number, starts[i], form.values) for i in shown]
        return Tensor(boxes, [note for note in _notes(self.picture, block, form, after=after) if note[1]])

    def _box(self, block: Block, part: Part, number: int, start: int, most: int) -> Box:
        elements = choose_shown(part.count, most, self._needed[number, start, part.count])
        return Box(part, label_text(part, self.picture.reduce_op), _cells(block, part, start, elements), block, start)


def _is_special(value: Any) -> bool:
    return isinstance(value, str) or (value == 0 and isinstance(value, float) and copysign(1, value) < 0)


def _blocks(picture: Picture, rank: RankPicture, *, after: bool) -> tuple[Block, ...]:
    return () if describe_absence(picture, rank, after=after) else rank.tensors(after=after)


def _cells(block: Block, part: Part, start: int, elements: Sequence[int | None]) -> tuple[Cell, ...]:
    if not part.count:
        return (Cell("empty"),)
    if block.pickled:
        cells = [(f"pickle, {part.count} B", bool(block.mismatches or block.hash_differs))]
    elif block.values is None:
        cells = [(format_count(part.count, "element"), block.hash_differs)]
    else:
        mismatches = {element - start for element in block.mismatches}
        cells = [(ELLIPSIS if i is None else number_text(block.values[start + i]), i in mismatches) for i in elements]
    return tuple(Cell(f"✘{text}" if mismatches else text, mismatches) for text, mismatches in cells)


def _notes(picture: Picture, block: Block, form: Form, *, after: bool) -> list[tuple[str, str]]:
    notes = []
    if block.values is None:
        notes.append(("kind", "" if is_uniform(picture, after=after) else shape_text(block.dtype, block.shape)))
        notes.append(("summary", "read too late" if block.late else summary_text(block.summary)))
    if block.hash_differs:
        notes.append(("bad", "✘ another tensor"))
    if block.mismatches and block.expected is not None:
        shown = choose_shown(len(block.expected), form.values, block.mismatches)
        texts = [ELLIPSIS if i is None else number_text(block.expected[i]) for i in shown]
        notes.append(("good", f"should be {' '.join(texts)}"))
    return notes
