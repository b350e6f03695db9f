"""Define the kinds of values that a scenario key can have, and the units of durations, sizes, and rates."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

from lab.errors import UsageError
from lab.spec.reading import NUMBER, QUOTABLE, TRUE, InvalidError, Reading, Value, clip_repr, did_you_mean
from lab.words import clip_end

DURATIONS_ALLOWED = "a duration such as 500ms, 60s, 2m, or 1h, or a plain number of seconds"
AGES_ALLOWED = "an age such as 30m, 12h, 7d, or 4w"
SIZES_ALLOWED = "a size such as 100k, 512MB, or 1GiB (k, M, G, T: powers of 1000; Ki, Mi, Gi, Ti: of 1024), or bytes"

_SECONDS = {"": 1, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES: dict[str, float] = {"": 1, **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)}}
_BYTES |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", start=1)}
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
_LONGEST = 64


def parse_duration(value: str | float) -> float:
    """Parse text such as `60s`, `500ms`, `2m`, or `1h` into seconds; a number without a unit is seconds."""
    return float(parse_quantity(value, str, _SECONDS, DURATIONS_ALLOWED))


def parse_age(value: str) -> float:
    """Parse text such as `12h`, `7d`, or `4w` into seconds; refuse a number without a unit."""
    return float(parse_quantity(value, str, _AGES, AGES_ALLOWED))


def parse_size(value: str | float) -> int:
    """Parse text such as `1GiB`, `512MB`, or `100k`, in any case, into bytes; a number without a unit is bytes."""
    return round(parse_quantity(value, lambda unit: unit.lower().removesuffix("b"), _BYTES, SIZES_ALLOWED))


def is_unit(word: str) -> bool:
    """Return whether a word is the unit of a duration or a size."""
    return word in _SECONDS or word.lower().removesuffix("b") in _BYTES


def parse_quantity(value: str | float, fold: Callable[[str], str], units: Mapping[str, float], allowed: str) -> float:
    """Parse text with a unit into a number.

    Args:
        value: text, or a number without a unit.
        fold: turns a unit into a key of `units`.
        units: factor of each unit.
        allowed: what is allowed, for the message.

    Raises:
        UsageError: it is not a quantity, or it is too large.
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


_OPTIONS: dict[str, tuple[Any, str]] = {
    "bool": (bool, "True or False"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "str": (str, "text"),
    "Sequence": (Sequence, "a list"),
}
"""Types of options of the Python API, with what they allow in words."""


def check_option(name: str, value: Any, annotation: str) -> Any:
    """Return the value of an option of the Python API; text such as `5s` or `1GiB` becomes seconds or bytes.

    Raises:
        UsageError: its type is not the one of the annotation.
    """
    kind, unit = annotation.removesuffix(" | None").partition("[")[0], name.rpartition("_")[2]
    types, allowed = _OPTIONS.get(kind, (object, ""))
    if isinstance(value, str) and unit in ("s", "bytes"):
        try:
            return parse_duration(value) if unit == "s" else parse_size(value)
        except UsageError as error:
            raise UsageError(f"{name}: {error.message}") from None
    is_text, is_bool = isinstance(value, str) and kind != "str", isinstance(value, bool) and kind != "bool"
    is_optional = value is None and "None" in annotation
    if not is_optional and types is not object and (not isinstance(value, types) or is_text or is_bool):
        raise UsageError(f"{name}: found {clip_repr(value)}; allowed: {allowed}")
    return value


QUANTITY = r"^ *([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *"
_LONGEST_INTEGER = 1000
_NAME = "[a-z0-9][a-z0-9_-]{0,62}"
_IMAGE = "[A-Za-z0-9][A-Za-z0-9._:/@-]{0,255}"


class Kind(NamedTuple):
    """Describe the values that a key can have."""

    allowed: str
    """The allowed values, in words."""
    read: Callable[[Value], Any]
    """Converts a value of the file to data; raises `InvalidError` if it is not allowed."""
    schema: Mapping[str, Any]
    """The JSON Schema of the value."""
    dump: Callable[[Any], Any] = lambda data: data
    """Converts data to what a file would contain."""


def read_or_refuse(kind: Kind, value: Value, allowed: str) -> Any:
    """Read a value; if it is not allowed, raise a problem that names these allowed values."""
    try:
        return kind.read(value)
    except InvalidError:
        raise value.refused(allowed) from None


def boolean_kind() -> Kind:
    """Make the kind of true or false, in any of YAML's spellings."""

    def read(value: Value) -> bool:
        if value.kind != "boolean":
            raise value.refused("true or false")
        return value.raw.lower() in TRUE

    return Kind("true or false", read, {"type": "boolean"})


def text_kind(allowed: str = "text") -> Kind:
    """Make the kind of any text."""
    return Kind(allowed, lambda value: read_text(value, allowed), {"type": "string"})


def read_text(value: Value, allowed: str, *, quotable: bool = True) -> str:
    """Read text that is safe in a file name, an argument, or the environment: no NUL, no lone surrogate.

    If `quotable`, the message suggests quotes around a number or a boolean.
    """
    if value.kind in QUOTABLE and quotable:
        raise value.refused(f"{allowed} (put it in quotes: '{value.raw[:40]}')")
    if value.kind != "text":
        raise value.refused(allowed)
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value.raw):
        raise value.refused(f"{allowed}, without NUL characters and surrogates")
    return str(value.raw)


def text_or_number() -> Kind:
    """Make the kind of text, or of a number that keeps its exact spelling."""
    allowed = "text or a number"

    def read(value: Value) -> str:
        return str(value.raw) if value.kind in ("integer", "number") else read_text(value, allowed)

    return Kind(allowed, read, {"type": ["string", "number"]})


def matching_text(
    allowed: str, pattern: str, tip: Callable[[str], str] = lambda _: "", *, quotable: bool = True
) -> Kind:
    """Make the kind of text that matches a pattern.

    Args:
        allowed: the allowed values, in words.
        pattern: a regular expression that the whole text must match.
        tip: suggests what a text that does not match could mean.
        quotable: whether the message suggests quotes around a number or a boolean.
    """

    def read(value: Value) -> str:
        word = read_text(value, allowed, quotable=quotable)
        if not re.fullmatch(pattern, word):
            raise value.refused(allowed, tip(word))
        return word

    return Kind(allowed, read, {"type": "string", "pattern": f"^{pattern}$"})


def name_kind() -> Kind:
    """Make the kind of a record's name."""

    def suggest(word: str) -> str:
        return f" (did you mean {make_slug(word)!r}?)" if re.search("[A-Za-z0-9]", word) else ""

    return matching_text("lower-case letters, digits, -, and _, up to 63, a letter or digit first", _NAME, suggest)


def make_slug(word: str) -> str:
    """Turn a word into a valid name: lower case, with - for everything except letters, digits, -, and _."""
    return re.sub(r"[^a-z0-9_-]+", "-", word.lower()).strip("-_")[:63] or "scenario"


def image_kind() -> Kind:
    """Make the kind of a container image's name."""
    return matching_text("the name of an image, such as pytorch/pytorch:latest", _IMAGE, quotable=False)


def choice_kind(words: Sequence[str], note: str = "") -> Kind:
    """Make the kind of one of several words; the note is appended to the list of words in messages."""
    allowed = ", ".join(words) + note

    def read(value: Value) -> str:
        if (word := read_text(value, allowed, quotable=False)) not in words:
            raise value.refused(allowed, did_you_mean(word, words))
        return word

    return Kind(allowed, read, {"enum": list(words)})


_LONGEST_PATTERN = 10_000
"""Characters; Python takes seconds to compile 100,000."""


def regex_kind() -> Kind:
    """Make the kind of a regular expression in Python's syntax."""
    allowed = "a regular expression"

    def read(value: Value) -> str:
        if not (expression := read_text(value, allowed)):
            raise value.refused(allowed, ", which matches everything")
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
    """Make the kind of a whole number from `low` to `high`, both included."""
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
    """Make the kind of a finite number that is more than `above` and from `low` to `high`."""

    def read(value: Value) -> float:
        if value.kind in ("integer", "number") and re.fullmatch(NUMBER, value.raw):
            number = float(value.raw)
            if math.isfinite(number) and above < number and low <= number <= high:
                return number
        raise value.refused(allowed)

    bounds = {"exclusiveMinimum": above, "minimum": low, "maximum": high}
    finite = {word: bound for word, bound in bounds.items() if math.isfinite(bound)}
    return Kind(allowed, read, {"type": "number", **finite})


def duration_kind(longest_s: int) -> Kind:
    """Make the kind of a duration in seconds, more than 0 and at most `longest_s`."""
    unit = next((unit for unit in ("h", "m") if longest_s % _SECONDS[unit] == 0), "s")
    bounds = f"more than 0 and at most {longest_s // _SECONDS[unit]}{unit}"
    pattern = f"{QUANTITY}({'|'.join(filter(None, _SECONDS))})? *$"
    schema: dict[str, Any] = {"type": ["string", "number"], "pattern": pattern}
    schema |= {"exclusiveMinimum": 0, "maximum": longest_s}
    return quantity_kind(parse_duration, DURATIONS_ALLOWED, bounds, (0, longest_s), schema, "{:.12g}s".format)


def size_kind(low: int, high: int) -> Kind:
    """Make the kind of a size in bytes from `low` to `high`, both included."""
    bounds = f"from {low >> 20}MiB to {high >> 40}TiB"
    schema = {"type": ["string", "integer"], "pattern": f"{QUANTITY}([kKmMgGtT][iI]?)?[bB]? *$"}
    return quantity_kind(parse_size, SIZES_ALLOWED, bounds, (low, high), {**schema, "minimum": low, "maximum": high})


def quantity_kind(
    parse: Callable[[str], float],
    allowed: str,
    bounds: str,
    limits: tuple[float, float],
    schema: Mapping[str, Any],
    dump: Callable[[Any], Any] = lambda quantity: quantity,
) -> Kind:
    """Make the kind of a quantity above 0 and within these limits, both included; `bounds` names them in words."""

    def read(value: Value) -> float:
        try:
            quantity = parse("" if value.kind in ("list", "mapping", "nothing", "boolean") else value.raw)
        except UsageError:
            raise value.refused(allowed) from None
        if quantity <= 0 or not limits[0] <= quantity <= limits[1]:
            raise value.refused(bounds)
        return quantity

    return Kind(f"{allowed}; {bounds}", read, schema, dump)


def list_of(item: Kind, allowed: str) -> Kind:
    """Make the kind of a list; each invalid item is a problem of its own."""

    def read(value: Value) -> tuple[Any, ...]:
        items = []
        for each in value.items(allowed):
            with value.reading.attempt():
                items.append(item.read(each))
        return tuple(items)

    return Kind(allowed, read, {"type": "array", "items": item.schema}, lambda data: list(map(item.dump, data)))


def read_scalar(value: Value) -> Any:
    """Convert a scalar to None, bool, int, float, or str."""
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
    """A kind that is made on first use."""

    def __init__(self, module: str, maker: str) -> None:
        self._module, self._maker = module, maker

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(import_module(self._module), self._maker)(), name)


def lazy_kind(module: str, maker: str) -> Kind:
    """Return the kind that a module's function makes, imported on first use because most files have few keys."""
    return cast("Kind", _Late(module, maker))


MAX_RANK = 1024 * 1024 - 1
"""Highest rank of the largest cluster that a scenario may ask for."""
NODE = "node(0|[1-9][0-9]{0,3})"
"""Pattern of a node's name."""


class World(NamedTuple):
    """Describe the ranks of a run, as far as a scenario knows them while the lab loads it."""

    nodes: int | None
    """None: as many as the cluster has."""
    nproc_per_node: int | None
    """None: as the cluster decides."""

    @classmethod
    def of(cls, reading: Reading) -> World:
        """Return the facts about ranks from the keys read so far."""
        return cls(reading.known.get("nodes"), reading.known.get("nproc_per_node"))

    @property
    def size(self) -> int | None:
        """Ranks of the run; None where the cluster decides."""
        return self.nodes * self.nproc_per_node if self.nodes and self.nproc_per_node else None

    @property
    def allowed(self) -> str:
        """Describe the ranks that a scenario can name."""
        if self.size is None:
            return "a rank, 0 or more"
        return f"a rank from 0 to {self.size - 1} ({self.nodes} x {self.nproc_per_node} ranks)"


def rank_kind() -> Kind:
    """Make the kind of a rank of the run."""

    def read(value: Value) -> Any:
        world = World.of(value.reading)
        return read_or_refuse(whole_number(0, (world.size or MAX_RANK + 1) - 1), value, world.allowed)

    return Kind("a rank, 0 or more", read, {"type": "integer", "minimum": 0})


def node_kind() -> Kind:
    """Make the kind of a node of the run."""
    allowed = "the name of a node, such as node2"

    def read(value: Value) -> str:
        word, nodes = read_text(value, allowed), World.of(value.reading).nodes
        if not re.fullmatch(NODE, word) or (nodes and int(word.removeprefix("node")) >= nodes):
            raise value.refused(f"a node from node0 to node{nodes - 1}" if nodes else allowed)
        return word

    return Kind(allowed, read, {"type": "string", "pattern": f"^{NODE}$"})
