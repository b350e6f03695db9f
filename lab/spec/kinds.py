"""The kinds of values that a key of a scenario may have, and the units of durations, sizes and rates."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

from lab.errors import UsageError
from lab.spec.reading import NUMBER, QUOTABLE, TRUE, InvalidError, Reading, Value, did_you_mean
from lab.words import clip_end

DURATIONS_ALLOWED = "a duration such as 500ms, 60s, 2m or 1h, or a plain number of seconds"
AGES_ALLOWED = "an age such as 30m, 12h, 7d or 4w"
SIZES_ALLOWED = "a size such as 100k, 512MB or 1GiB (k, M, G, T: powers of 1000; Ki, Mi, Gi, Ti: of 1024), or bytes"

_SECONDS = {"": 1, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES: dict[str, float] = {"": 1, **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)}}
_BYTES |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", start=1)}
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
_LONGEST = 64


def parse_duration(value: str | float) -> float:
    """The seconds that text such as `60s`, `500ms`, `2m` or `1h` means; a number without a unit is seconds."""
    return float(parse_quantity(value, str, _SECONDS, DURATIONS_ALLOWED))


def parse_age(value: str) -> float:
    """The seconds that text such as `12h`, `7d` or `4w` means; a number without a unit is refused."""
    return float(parse_quantity(value, str, _AGES, AGES_ALLOWED))


def parse_size(value: str | float) -> int:
    """The bytes that text such as `1GiB`, `512MB` or `100k` means, in any case; a number without a unit is bytes."""
    return round(parse_quantity(value, lambda unit: unit.lower().removesuffix("b"), _BYTES, SIZES_ALLOWED))


def parse_quantity(value: str | float, fold: Callable[[str], str], units: Mapping[str, float], allowed: str) -> float:
    """The number that text with a unit means; `fold` makes of a unit what is in the table of their factors.

    Raises:
        UsageError: it is none, or too large.
    """
    text = str(value).strip() if not isinstance(value, bool) else ""
    match = re.fullmatch(rf"{_NUMBER}[ \t]*([A-Za-z]*)", text) if len(text) <= _LONGEST else None
    if match is None or fold(match[2]) not in units:
        raise UsageError(f"found {clip_end(repr(value), _LONGEST)}; allowed: {allowed}")
    factor = units[fold(match[2])]
    number = int(match[1]) * factor if match[1].isdecimal() else float(match[1]) * factor
    if not math.isfinite(number):
        raise UsageError(f"found {clip_end(repr(value), _LONGEST)}, which is too large; allowed: {allowed}")
    return number


QUANTITY = r"^ *([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *"
_LONGEST_INTEGER = 1000
_NAME = "[a-z0-9][a-z0-9_-]{0,62}"
_IMAGE = "[A-Za-z0-9][A-Za-z0-9._:/@-]{0,255}"


class Kind(NamedTuple):
    """What the value of a key may be."""

    allowed: str
    """What it may be, in words."""
    read: Callable[[Value], Any]
    """The data that a value of the file stands for; raises `InvalidError` where it is not allowed."""
    schema: Mapping[str, Any]
    """What JSON Schema says of it."""
    dump: Callable[[Any], Any] = lambda data: data
    """The data as a file would say it."""


def read_or_refuse(kind: Kind, value: Value, allowed: str) -> Any:
    """What a value stands for; where it is not allowed, the problem says in these words what is."""
    try:
        return kind.read(value)
    except InvalidError:
        raise value.refused(allowed) from None


def boolean_kind() -> Kind:
    """True or false, in any of YAML's spellings."""

    def read(value: Value) -> bool:
        if value.kind != "boolean":
            raise value.refused("true or false")
        return value.raw.lower() in TRUE

    return Kind("true or false", read, {"type": "boolean"})


def text_kind(allowed: str = "text") -> Kind:
    """Text of any sort."""
    return Kind(allowed, lambda value: read_text(value, allowed), {"type": "string"})


def read_text(value: Value, allowed: str, *, quotable: bool = True) -> str:
    """Text that may go into a file name, an argument or the environment: no NUL, no half of a surrogate pair.

    Where it is `quotable`, a number or a boolean in quotes could be meant.
    """
    if value.kind in QUOTABLE and quotable:
        raise value.refused(f"{allowed} (put it in quotes: '{value.raw[:40]}')")
    if value.kind != "text":
        raise value.refused(allowed)
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value.raw):
        raise value.refused(f"{allowed}, without NUL characters and surrogates")
    return str(value.raw)


def text_or_number() -> Kind:
    """Text, or the text of a number exactly as it is written."""
    allowed = "text or a number"

    def read(value: Value) -> str:
        return str(value.raw) if value.kind in ("integer", "number") else read_text(value, allowed)

    return Kind(allowed, read, {"type": ["string", "number"]})


def matching_text(
    allowed: str, pattern: str, tip: Callable[[str], str] = lambda _: "", *, quotable: bool = True
) -> Kind:
    """Text of a certain form.

    Args:
        allowed: what it may be, in words.
        pattern: a regular expression that the whole text matches.
        tip: says what a word of another form may have meant.
        quotable: whether a number or a boolean in quotes could be meant.
    """

    def read(value: Value) -> str:
        word = read_text(value, allowed, quotable=quotable)
        if not re.fullmatch(pattern, word):
            raise value.refused(allowed, tip(word))
        return word

    return Kind(allowed, read, {"type": "string", "pattern": f"^{pattern}$"})


def name_kind() -> Kind:
    """What may name a record."""

    def suggest(word: str) -> str:
        return f" (did you mean {make_slug(word)!r}?)" if re.search("[A-Za-z0-9]", word) else ""

    return matching_text("lower-case letters, digits, - and _, up to 63, a letter or digit first", _NAME, suggest)


def make_slug(word: str) -> str:
    """The word as a name may be written: lower-case, everything but letters, digits, - and _ replaced by -."""
    return re.sub(r"[^a-z0-9_-]+", "-", word.lower()).strip("-_")[:63] or "scenario"


def image_kind() -> Kind:
    """The name of a container image."""
    return matching_text("the name of an image, such as pytorch/pytorch:latest", _IMAGE, quotable=False)


def choice_kind(words: Sequence[str], note: str = "") -> Kind:
    """One of a few words; the note says something of them."""
    allowed = ", ".join(words) + note

    def read(value: Value) -> str:
        word = read_text(value, allowed, quotable=False)
        if word not in words:
            raise value.refused(allowed, did_you_mean(word, words))
        return word

    return Kind(allowed, read, {"enum": list(words)})


_LONGEST_PATTERN = 10_000
"""Characters; Python takes seconds to compile 100,000."""


def regex_kind() -> Kind:
    """A regular expression in Python's syntax."""
    allowed = "a regular expression"

    def read(value: Value) -> str:
        expression = read_text(value, allowed)
        if len(expression) > _LONGEST_PATTERN:
            raise value.refused(f"{allowed} of at most {_LONGEST_PATTERN:,} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(expression, re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            why = "it is nested too deep" if isinstance(error, RecursionError) else str(error).replace("\n", " ")
            raise value.refused(f"{allowed} ({why})") from None
        return expression

    return Kind(allowed, read, {"type": "string", "format": "regex"})


def whole_number(low: int, high: int) -> Kind:
    """A whole number from `low` to `high`, both included."""
    allowed = f"a whole number from {low} to {high}"

    def read(value: Value) -> int:
        is_count = value.kind in ("integer", "text") and re.fullmatch("0|-?[1-9][0-9]*", value.raw)
        if is_count and value.kind == "text":
            raise value.refused(f"{allowed}, without quotes")
        if not is_count or len(value.raw) > 20 or not low <= int(value.raw) <= high:
            raise value.refused(allowed)
        return int(value.raw)

    return Kind(allowed, read, {"type": "integer", "minimum": low, "maximum": high})


def number_kind(allowed: str, *, above: float = -math.inf, low: float = -math.inf, high: float = math.inf) -> Kind:
    """A finite number, more than `above`, from `low` to `high`."""

    def read(value: Value) -> float:
        if value.kind in ("integer", "number") and re.fullmatch(NUMBER, value.raw):
            found = float(value.raw)
            if math.isfinite(found) and above < found and low <= found <= high:
                return found
        raise value.refused(allowed)

    bounds = {"exclusiveMinimum": above, "minimum": low, "maximum": high}
    finite = {word: bound for word, bound in bounds.items() if math.isfinite(bound)}
    return Kind(allowed, read, {"type": "number", **finite})


def duration_kind(longest_s: int) -> Kind:
    """Seconds, more than 0 and at most `longest_s`."""
    bounds = f"more than 0 and at most {longest_s / 3600:g}h"
    schema: dict[str, Any] = {"type": ["string", "number"], "pattern": f"{QUANTITY}(ms|s|m|h)? *$"}
    schema |= {"exclusiveMinimum": 0, "maximum": longest_s}
    return quantity_kind(parse_duration, DURATIONS_ALLOWED, bounds, (0, longest_s), schema, "{:.12g}s".format)


def size_kind(low: int, high: int) -> Kind:
    """Bytes from `low` to `high`, both included."""
    bounds = f"from {low >> 20}MiB to {high >> 40}TiB"
    schema = {"type": ["string", "integer"], "pattern": f"{QUANTITY}([kKmMgGtT][iI]?)?[bB]? *$"}
    return quantity_kind(parse_size, SIZES_ALLOWED, bounds, (low, high), {**schema, "minimum": low, "maximum": high})


def quantity_kind(
    parse: Callable[[str], float],
    allowed: str,
    bounds: str,
    limits: tuple[float, float],
    schema: Mapping[str, Any],
    dump: Callable[[Any], Any] = lambda found: found,
) -> Kind:
    """A quantity above 0 and within these limits, both included; the bounds say so in words."""

    def read(value: Value) -> float:
        try:
            found = parse("" if value.kind in ("list", "mapping", "nothing", "boolean") else value.raw)
        except UsageError:
            raise value.refused(allowed) from None
        if found <= 0 or not limits[0] <= found <= limits[1]:
            raise value.refused(bounds)
        return found

    return Kind(f"{allowed}; {bounds}", read, schema, dump)


def list_of(item: Kind, allowed: str) -> Kind:
    """A list of anything; every bad item is a problem of its own."""

    def read(value: Value) -> tuple[Any, ...]:
        found = []
        for each in value.items(allowed):
            with value.reading.attempt():
                found.append(item.read(each))
        return tuple(found)

    schema = {"type": "array", "items": item.schema}
    return Kind(allowed, read, schema, lambda data: [item.dump(each) for each in data])


def read_scalar(value: Value) -> Any:
    """What a scalar stands for: None, bool, int, float or str."""
    if value.kind == "nothing":
        return None
    if value.kind == "boolean":
        return boolean_kind().read(value)
    if value.kind == "integer":
        if not re.fullmatch("[+-]?(?:0|[1-9][0-9]*)", value.raw) or len(value.raw) > _LONGEST_INTEGER:
            raise value.refused("a decimal number without leading zeros, or text in quotes")
        return int(value.raw)
    if value.kind == "number":
        word = value.raw.lower()
        if word not in (".nan", ".inf", "+.inf", "-.inf") and not re.fullmatch(NUMBER, word):
            raise value.refused("a decimal number, or text in quotes")
        return float(word.replace(".nan", "nan").replace(".inf", "inf"))
    return read_text(value, "text")


class _Late:
    """A kind that is made when something of it is asked for."""

    def __init__(self, module: str, maker: str) -> None:
        self._module, self._maker = module, maker

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(import_module(self._module), self._maker)(), name)


def lazy_kind(module: str, maker: str) -> Kind:
    """The kind that a function of a module makes, imported when a file has a key of it: most files have few keys."""
    return cast("Kind", _Late(module, maker))


MAX_RANK = 1024 * 1024 - 1
"""Highest rank of the largest cluster that a scenario may ask for."""
NODE = "node(0|[1-9][0-9]{0,3})"
"""Pattern of a node's name."""


class World(NamedTuple):
    """What is known about the ranks of a run when its scenario is loaded."""

    nodes: int | None
    """None: whatever the cluster has."""
    nproc_per_node: int | None
    """None: whatever the cluster says."""

    @classmethod
    def of(cls, reading: Reading) -> World:
        """What a scenario says, whose other keys are being read."""
        return cls(reading.known.get("nodes"), reading.known.get("nproc_per_node"))

    @property
    def size(self) -> int | None:
        """Ranks of the run; None where the cluster decides."""
        return self.nodes * self.nproc_per_node if self.nodes and self.nproc_per_node else None

    @property
    def allowed(self) -> str:
        """The ranks that a scenario may name, for a person."""
        if self.size is None:
            return "a rank, 0 or more"
        return f"a rank from 0 to {self.size - 1} ({self.nodes} x {self.nproc_per_node} ranks)"


def rank_kind() -> Kind:
    """A rank of the run."""

    def read(value: Value) -> Any:
        world = World.of(value.reading)
        return read_or_refuse(whole_number(0, (world.size or MAX_RANK + 1) - 1), value, world.allowed)

    return Kind("a rank, 0 or more", read, {"type": "integer", "minimum": 0})


def node_kind() -> Kind:
    """A node of the run."""
    allowed = "the name of a node, such as node2"

    def read(value: Value) -> str:
        word, nodes = read_text(value, allowed), World.of(value.reading).nodes
        if not re.fullmatch(NODE, word) or (nodes and int(word.removeprefix("node")) >= nodes):
            raise value.refused(f"a node from node0 to node{nodes - 1}" if nodes else allowed)
        return word

    return Kind(allowed, read, {"type": "string", "pattern": f"^{NODE}$"})
