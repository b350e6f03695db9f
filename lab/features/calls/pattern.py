"""Parse calls as scenarios state them, and the key `calls` of `expect`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.errors import ScenarioError
from lab.frozen import Frozen
from lab.operations import OPERATIONS, REDUCTIONS
from lab.spec.declare import get_feature_values, key_field
from lab.spec.expressions import VARIABLES, RankVariables, evaluate_expected, is_expression
from lab.spec.keys import RANK_SCHEMA, by_rank, sample_variables
from lab.spec.kinds import Kind, World, list_of, read_text
from lab.spec.reading import Value, clip_repr, did_you_mean
from lab.spec.scenario import Expect

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)  # fmt: skip
PHASES = (
    "init_process_group", "new_group", "DDP()", "forward", "loss", "backward", "zero_grad", "step",
    "destroy_process_group",
)  # fmt: skip
"""Phases in traces; a call belongs to the innermost one."""
FORM = (
    "OPERATION [SUM] [float32[2,3]] [split [1,2]] [from RANK] [to RANK] [tag N] [in GROUP] [async] [bucket N] "
    "[module N] [during PHASE] [xTIMES], or ..."
)
MAX_CALLS = 10_000
"""Most calls that the items of one rank may expand to."""

_WORD = re.compile(r'(?:"[^"]*"|\[[^\]]*\]|[^\s"\[])+')
_TENSOR = re.compile(r"(?:([1-9]\d{0,5})\*)?(\w+)(?:\[([\d, ]*)\])?")
_REPEATED = re.compile(r"(.*\S)\s+x(-?\d{1,9})", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*)\}")
_WHOLE = re.compile(r"\d{1,9}")
_PARTS = {
    "from": "source", "to": "destination", "tag": "tag", "bucket": "bucket", "module": "module", "split": "split",
    "in": "group", "during": "phase",
}  # fmt: skip
"""Word -> the field of a pattern that the next word sets."""
_SPLIT = re.compile(r"\[(\d{1,15}(?:,\d{1,15})*)\]")
LONGEST = 2000
"""Most characters of an item."""
_DEEPEST = 10


class CallPattern(Frozen):
    """What is stated about one call; fields that are None are not compared."""

    text: str
    """As written, with its arithmetic evaluated."""
    op: str
    reduce_op: str | None = None
    tensors: tuple[tuple[str, tuple[int, ...] | None], ...] | None = None
    """Dtype and shape of each input tensor; of each output tensor for a call without inputs."""
    source: int | None = None
    """Global rank after `from`."""
    destination: int | None = None
    """Global rank after `to`."""
    from_any: bool | None = None
    """Whether it is a receive from any rank."""
    tag: int | None = None
    group: str | None = None
    split: tuple[int, ...] | None = None
    """Rows for each rank."""
    has_handle: bool | None = None
    """Whether its caller gets a handle to wait for."""
    bucket: int | None = None
    """Number of the DDP bucket that it reduces, from 1."""
    module: int | None = None
    """Number of that DDP module."""
    phase: str | None = None


ANYTHING = CallPattern(text="...", op="...")
"""Any number of any calls."""


def parse_calls(text: str, variables: RankVariables | None = None, longest: int = LONGEST) -> tuple[CallPattern, ...]:
    """Expand one item of a list of calls into calls, in order.

    `{...}` is arithmetic on variables of a rank. Without variables only the form is checked, and each expression is 1.

    Raises:
        ScenarioError: The item is not valid; the message names the item and the allowed forms.
    """
    if len(text) > longest:
        raise ScenarioError(f"found {clip_repr(text)}; allowed: up to {longest} characters")

    def compute(braces: re.Match[str]) -> str:
        expression = braces[1].strip()
        if not is_expression(expression):
            problem = f"found {{{expression}}}{did_you_mean(expression, VARIABLES)}"
            raise ScenarioError(f"{problem}; allowed in braces: arithmetic on {', '.join(VARIABLES)}")
        value = 1 if variables is None else evaluate_expected(expression, variables)
        return str(int(value) if isinstance(value, bool) else value)

    return tuple(_parse(_BRACES.sub(compute, text).strip(), variables.world_size if variables else None))


def _parse(text: str, world_size: int | None, depth: int = 0) -> Iterator[CallPattern]:
    if text == "...":
        yield ANYTHING
        return
    repeated = _REPEATED.fullmatch(text)
    body, times = (repeated[1], int(repeated[2])) if repeated else (text, 1)
    if times < 0:
        raise ScenarioError(f"found {clip_repr(text)}; allowed: 0 or more times")
    if times == 0:
        return  # the form was already checked without variables; for this rank it may name ranks that do not exist
    if body.startswith("("):
        if depth == _DEEPEST:
            raise ScenarioError(f"found {clip_repr(text)}; allowed: brackets up to {_DEEPEST} deep")
        once = [pattern for item in _inside(body) for pattern in _parse(item, world_size, depth + 1)]
    else:
        once = [_parse_call(body, world_size)]
    if len(once) * times > MAX_CALLS:
        raise ScenarioError(f"found {clip_repr(text)}; allowed: up to {MAX_CALLS} calls")
    yield from once * times


def _inside(body: str) -> list[str]:
    """Return the comma-separated items between a pair of round brackets."""
    items, depth, start, quoted = [], 0, 1, False
    for position, character in enumerate(body):
        quoted ^= character == '"'
        if quoted:
            continue
        depth += (character in "([") - (character in ")]")
        if (character == "," and depth == 1) or (depth == 0 and position == len(body) - 1):
            items.append(body[start:position].strip())
            start = position + 1
        elif depth == 0:
            break
    if depth != 0 or start != len(body):
        raise ScenarioError(f"found {clip_repr(body)}; allowed: (CALL, CALL) xTIMES, with one closing bracket")
    return items


def _parse_call(text: str, world_size: int | None) -> CallPattern:
    def refused(detail: str, allowed: str) -> ScenarioError:
        return ScenarioError(f"found {clip_repr(text)}{detail}; allowed: {allowed}")

    def following() -> str:
        if not words:
            raise refused(f", but {word!r} has no value", FORM)
        return words.pop(0)

    words: list[str] = _WORD.findall(text)
    if not words or _WORD.sub("", text).strip():
        raise refused("", FORM)
    if (op := words.pop(0)) not in OPERATIONS:
        raise refused(f", with the operation {op!r}{did_you_mean(op, OPERATIONS)}", ", ".join(OPERATIONS))
    parts: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        value: Any
        if word in _PARTS:
            name, value = _PARTS[word], following()
            if word == "from" and value == "any":
                name, value = "from_any", True
            elif word == "split":
                if (match := _SPLIT.fullmatch(value)) is None:
                    raise refused("", "rows for each rank after 'split', such as [1,2]")
                value = tuple(map(int, match[1].split(",")))
            elif word == "in":
                value = value.strip('"')
            elif word == "during":
                if value not in PHASES:
                    raise refused(f", with the phase {value!r}{did_you_mean(value, PHASES)}", ", ".join(PHASES))
            else:
                most = world_size if word in ("from", "to") else None
                if not _WHOLE.fullmatch(value) or (most is not None and int(value) >= most):
                    number = "a rank" if word in ("from", "to") else "a whole number, 0 or more,"
                    raise refused("", f"{number if most is None else f'a rank from 0 to {most - 1}'} after {word!r}")
                value = int(value)
        elif word == "async":
            name, value = "has_handle", True
        elif word in REDUCTIONS:
            name, value = "reduce_op", word
        else:  # `float32[2]`, `3*float32[2]`, `float32[2]+int64`
            name, value = "tensors", ()
            for one in word.split("+"):
                if (match := _TENSOR.fullmatch(one)) is None or match[2] not in DTYPES:
                    unknown = match[2] if match else one
                    meant = did_you_mean(unknown, (*DTYPES, *REDUCTIONS, *_PARTS, "async"))
                    allowed = f"a tensor such as float32[2,3], a reduction such as SUM, or {FORM}"
                    raise refused(f", with {unknown!r}{meant}", allowed)
                shape = None if match[3] is None else tuple(map(int, match[3].replace(",", " ").split()))
                value += ((match[2], shape),) * int(match[1] or 1)
        if name in parts:
            raise refused(f", which states {word!r} more than once", FORM)
        parts[name] = value
    return CallPattern(text=text, op=op, **parts)


SNAPSHOT = "snapshot"
"""Value of the key if the calls are in a file next to the scenario."""
Stated = str | Sequence[str] | Mapping[int, Sequence[str]]
"""For all ranks, or by rank; or `SNAPSHOT`."""


def _calls() -> Kind:
    """Return the kind of the key: a list for all ranks, or a mapping with a list per rank."""
    allowed = f"a list of calls, such as [all_gather, broadcast from 0], one for each rank, or {SNAPSHOT}"
    items = {"type": "array", "items": {"type": "string", "minLength": 1}}

    def read_list(value: Value, rank: int | None = None) -> Any:
        return list_of(Kind("", lambda item: _call(item, rank), {}), allowed).read(value)

    def read(value: Value) -> Any:
        if value.kind == "text" and value.raw == SNAPSHOT:
            return SNAPSHOT
        if value.kind == "text":
            raise value.refused(allowed, did_you_mean(value.raw, [SNAPSHOT]))
        return by_rank(value, allowed, read_list) if value.kind == "mapping" else read_list(value)

    def dump(data: Sequence[str] | Mapping[int, Sequence[str]]) -> Any:
        if data == SNAPSHOT:
            return data
        return {rank: list(one) for rank, one in data.items()} if isinstance(data, Mapping) else list(data)

    schema = {"oneOf": [{"const": SNAPSHOT}, items, {**RANK_SCHEMA, "additionalProperties": items}]}
    return Kind(allowed, read, schema, dump)


def _call(value: Value, rank: int | None) -> str:
    text = read_text(value, "a call, such as all_reduce SUM float32[45]", quotable=False)
    try:
        for variables in (None, *sample_variables(World.of(value.reading), rank)):
            parse_calls(text, variables)
    except ScenarioError as error:
        raise value.problem(error.message) from None
    return text


class CallsKeys(Frozen):
    """What scenarios state about the calls of ranks."""

    calls: Stated | None = key_field(None, _calls(), "calls: ['all_gather int64[1]', ..., barrier]", "not checked")
    """What each rank must have called, in order; see Expected calls. `snapshot`: what is in a file next to this one,
    which the first run writes; see snapshots."""


def calls_of(expect: Expect) -> Stated | None:
    """Return the expected calls; None if nothing is stated."""
    return get_feature_values(expect, CallsKeys).calls
