"""Read a scenario file: its values with their positions, and the problems with them.

The kind of a scalar follows YAML 1.1 as PyYAML resolves it, with two differences that people expect. `1e-6` is a
number. Numbers in base 8 or 60 (`010`, `1:30`) are refused by what reads them, not silently converted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lab.errors import ScenarioError
from lab.words import clip_end

if TYPE_CHECKING:  # a plain script does not need YAML
    from yaml.nodes import Node


T = TypeVar("T")
U = TypeVar("U")
MAX_SHOWN = 20
"""Most problems that one error shows; the others are counted."""
_LONGEST_WORD = 100


class Position(NamedTuple):
    """A position in a file: the line and the column, both from 1."""

    line: int = 1
    column: int = 1

    @classmethod
    def of(cls, start: Any) -> Position:
        """Return the position of a YAML mark."""
        return cls(start.line + 1, start.column + 1)


class InvalidError(Exception):
    """One problem, on its way to `Reading`; it never leaves `lab.spec`."""

    def __init__(self, where: Position, message: str) -> None:
        super().__init__(where, message)


class Reading:
    """A scenario file while it is read; collects all problems, so that people see them at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """As the person named it; every line of the error begins with it."""
        self.folder = Path(os.path.abspath(path)).parent
        """The folder that relative paths in the file start from."""
        self.known: dict[str, Any] = {}
        """Attributes of the scenario that were read so far, without invalid ones."""
        self._problems: set[tuple[Position, str]] = set()

    @property
    def is_clean(self) -> bool:
        """Whether there are no problems so far."""
        return not self._problems

    def add(self, where: Position, message: str) -> None:
        """Note a problem; the same problem at the same position counts once, because aliases can repeat it."""
        self._problems.add((where, message))

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Note the `InvalidError` that ends the block, and continue after the block."""
        try:
            yield
        except InvalidError as problem:
            self.add(*problem.args)

    def raise_if_any(self) -> None:
        """Raise one `ScenarioError` for all problems, if there are any: one line each, in the order of the file."""
        path = str(self.path) if str(self.path).isprintable() else repr(str(self.path))[1:-1]
        problems = tuple((*where, message) for where, message in sorted(self._problems))
        lines = [f"{path}:{line}:{column}: {message}" for line, column, message in problems]
        hidden = len(lines) - MAX_SHOWN
        if lines:
            hint = f"{hidden} more problems are not shown" if hidden > 0 else ""
            error = ScenarioError("\n".join(lines[:MAX_SHOWN]), hint)
            error.problems = problems
            raise error


def find_near_match(word: str, choices: Iterable[str], likeness: float = 0.72) -> str | None:
    """Return the choice that `word` probably means, ignoring case; None if no choice is similar enough."""
    if len(word) > _LONGEST_WORD:
        return None
    from difflib import get_close_matches  # only errors need it

    by_folded = {choice.casefold(): choice for choice in choices}
    word = word.casefold()
    swapped = [one for one in by_folded if sorted(one) == sorted(word)]
    return next((by_folded[one] for one in (*swapped, *get_close_matches(word, by_folded, 1, likeness))), None)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean 'nodes'?)` for the nearest match of `word`; empty if nothing is near."""
    match = find_near_match(word, choices)
    return f" (did you mean {match!r}?)" if match else ""


def names_in(folder: Path, *endings: str) -> list[str]:
    """List the sorted names in a folder, optionally only those with an ending; empty if it cannot be listed."""
    with suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.endswith(endings or ("",)))
    return []


def describe_contents(what: str, names: Sequence[str], where: str = "it") -> str:
    """Return text such as `is a folder; it holds a.py, b.py`."""
    return f"{what}; {where} holds {', '.join(names[:10])}" if names else what


def missing_file(what: str, path: Path, *endings: str) -> str:
    """Describe a missing file: `no such script (did you mean 'train.py'?)`, or that its folder does not exist."""
    if not os.path.isdir(path.parent):
        return f"no such {what}; the folder {clip_repr(str(path.parent), 1000)} does not exist"
    return f"no such {what}{did_you_mean(path.name, names_in(path.parent, *endings))}"


def describe_space(character: str) -> str:
    """Describe a Unicode space in the place of a plain one."""
    from unicodedata import name  # only errors need it

    return f"found a {name(character, 'strange space').lower()} (U+{ord(character):04X}); allowed: a plain space"


def clip_repr(value: object, longest: int = 80) -> str:
    """Return Python's repr of a value, cut to `longest` characters."""
    with suppress(RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return clip_end(repr(value), longest)
    return f"a {type(value).__name__} that is too large to show"


NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
QUOTABLE = ("boolean", "integer", "number")
"""Kinds of scalars that become text in quotes."""
TRUE = ("yes", "true", "on")
"""What YAML reads as true, in lower case."""

_KINDS = {"null": "nothing", "bool": "boolean", "int": "integer", "float": "number"}


class Value:
    """One value in a scenario file; `field` is its path, such as `expect.tolerance`, empty for the whole scenario."""

    def __init__(self, node: Node, field: str, reading: Reading, key: Value | None = None) -> None:
        self.field, self.reading = field, reading
        self.where = Position.of(node.start_mark)
        self.key_where = key.where if key else self.where
        """Position of the key, if the value is in a mapping."""
        self.raw: Any = node.value
        """The text in the file, if the value is a scalar."""
        self._node: Any = node

    @cached_property
    def kind(self) -> str:
        """Return `nothing`, `boolean`, `integer`, `number`, `text`, `list`, or `mapping`; quoted values are text."""
        if self._node.id != "scalar":
            return "list" if self._node.id == "sequence" else "mapping"
        if self._node.style:
            return "text"
        kind = _KINDS.get(self._node.tag.rpartition(":")[2], "text")
        return "number" if kind == "text" and re.fullmatch(NUMBER, self.raw) else kind

    @property
    def start(self) -> Any:
        """The position as a YAML mark."""
        return self._node.start_mark

    def problem(self, message: str) -> InvalidError:
        """Return the problem with this message, at the position of this value."""
        return InvalidError(self.where, f"{self.field}: {message}" if self.field else message)

    def refused(self, allowed: str, tip: str = "") -> InvalidError:
        """Return the problem that the value is not one of the allowed ones."""
        message = f"found {self.describe()}{tip}; allowed: {allowed}"
        return self.problem(message if self.field else f"the scenario: {message}")

    def describe(self) -> str:
        """Describe the value in a message: `the number 3`, `'text'`, `a list`."""
        if self.kind in ("integer", "number"):
            return f"the number {clip_end(self.raw, 40)}"
        if self.kind == "boolean":
            read_as = "true" if self.raw.lower() in TRUE else "false"
            return f"the boolean {self.raw}" + ("" if self.raw.lower() == read_as else f" (YAML reads it as {read_as})")
        return {"list": "a list", "mapping": "a mapping", "nothing": "nothing"}.get(self.kind) or clip_repr(self.raw)

    def items(self, allowed: str) -> list[Value]:
        """Return the items of a list; refuse anything else."""
        if self.kind != "list":
            raise self.refused(allowed)
        return [Value(node, f"{self.field}[{index}]", self.reading) for index, node in enumerate(self.raw)]

    def pairs(self, allowed: str) -> list[tuple[Value, Value]]:
        """Return the keys and values of a mapping in order; a duplicate key is a problem and is left out."""
        if self.kind != "mapping":
            raise self.refused(allowed)
        if not self.raw and re.fullmatch(r"expect\.\w+", self.field):
            raise self.problem(f"found an empty mapping, which expects nothing; allowed: {allowed}")
        first_line: dict[tuple[str, str], int] = {}
        unique_pairs = []
        for key_node, node in self.raw:
            key = Value(key_node, self.field, self.reading)
            name = key.raw if key_node.id == "scalar" else ""
            if name and (key.kind, name) in first_line:
                first = f"it is on line {first_line[key.kind, name]} already; remove one of the two"
                self.reading.add(*key.problem(f"duplicate key {clip_repr(name)}; {first}").args)
                continue
            first_line[key.kind, name] = key.where.line
            unique_pairs.append((key, Value(node, f"{self.field}.{name}" if self.field else name, self.reading, key)))
        return unique_pairs

    def mapping(self, allowed: str, read: Callable[[Value, Value], tuple[T, U]]) -> dict[T, U]:
        """Read each key and value of a mapping with `read`; each invalid pair is a problem of its own."""
        pairs = {}
        for key, item in self.pairs(allowed):
            with self.reading.attempt():
                name, data = read(key, item)
                pairs[name] = data
        return pairs

    def as_key(self) -> str:
        """Return the text of a key; refuse anything else."""
        if self._node.tag.endswith(":merge"):
            raise InvalidError(self.where, "merge keys (<<) are not supported; allowed: the keys written out")
        if self.kind != "text" or not self.raw:
            description = "an empty key" if self.raw == "" else f"{self.describe()} as a key"
            quote = f" (in quotes: '{self.raw}')" if self.kind in QUOTABLE else ""
            raise self.problem(f"found {description}; allowed: text{quote}")
        if not self._node.style and self.raw != self.raw.lstrip():
            raise self.problem(describe_space(self.raw[0]))
        return str(self.raw)
