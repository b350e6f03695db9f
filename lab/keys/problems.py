"""What is wrong with a scenario, where it stands in the file, and what was probably meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import ScenarioError
from lab.words import clip

MAX_SHOWN = 20
"""Problems that one error shows; the rest is counted."""
_LONGEST_WORD = 100


class Position(NamedTuple):
    """A place in a file: the line, and the character of the line, from 1."""

    line: int = 1
    column: int = 1

    @classmethod
    def of(cls, mark: Any) -> Position:
        """The place that YAML marks."""
        return cls(mark.line + 1, mark.column + 1)


class InvalidError(Exception):
    """One problem, on its way to `Reading`; it never leaves `lab.spec`."""

    def __init__(self, where: Position, message: str) -> None:
        super().__init__(where, message)


class Reading:
    """A scenario file that is being read; collects what is wrong with it, so that a person sees all of it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """As the person named it; every line of the error begins with it."""
        self.folder = Path(os.path.abspath(path)).parent
        """What the paths in it are relative to."""
        self.known: dict[str, Any] = {}
        """Attributes of the scenario read so far, without those that are a problem."""
        self._found: set[tuple[Position, str]] = set()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self._found

    def add(self, where: Position, message: str) -> None:
        """Notes one problem; the same problem at the same place counts once (it may be reached by an alias)."""
        self._found.add((where, message))

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Notes the `InvalidError` that ends the block, and goes on after it."""
        try:
            yield
        except InvalidError as problem:
            self.add(*problem.args)

    def raise_if_any(self) -> None:
        """Raises what was noted, if anything was, as one `ScenarioError`: a line a problem, in the file's order."""
        found = sorted(self._found)
        path = str(self.path) if str(self.path).isprintable() else repr(str(self.path))[1:-1]
        lines = [f"{path}:{where.line}:{where.column}: {message}" for where, message in found[:MAX_SHOWN]]
        hidden = len(found) - len(lines)
        if found:
            raise ScenarioError("\n".join(lines), hint=f"{hidden} more problems are not shown" if hidden else "")


def near(word: str, choices: Iterable[str], likeness: float = 0.6) -> str | None:
    """The choice that was probably meant by `word`, without regard to case; None if none is so like it."""
    if len(word) > _LONGEST_WORD:
        return None
    from difflib import get_close_matches  # only needed when something is wrong

    by_folded = {choice.casefold(): choice for choice in choices}
    found = get_close_matches(word.casefold(), by_folded, n=1, cutoff=likeness)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """` (did you mean 'nodes'?)` for the near match of `word`; empty if none is near."""
    found = near(word, choices)
    return f" (did you mean {found!r}?)" if found else ""


def names_in(folder: Path, *endings: str) -> list[str]:
    """Names in a folder, sorted; with endings, only those that have one; empty where it cannot be listed."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(endings or ("",)))
    except OSError:
        return []


def holding(what: str, names: Sequence[str], where: str = "it") -> str:
    """`is a folder; it holds a.py, b.py`."""
    return f"{what}; {where} holds {', '.join(names[:10])}" if names else what


def missing_file(what: str, path: Path, *endings: str) -> str:
    """`no such script (did you mean 'train.py'?)`, or that not even its folder exists."""
    if not os.path.isdir(path.parent):
        return f"no such {what}; the folder {shown(str(path.parent), 1000)} does not exist"
    return f"no such {what}{did_you_mean(path.name, names_in(path.parent, *endings))}"


def odd_space(character: str) -> str:
    """That a space of another kind stands where a plain one belongs."""
    from unicodedata import name  # only needed when something is wrong

    return f"found a {name(character, 'strange space').lower()} (U+{ord(character):04X}); allowed: a plain space"


def shown(value: object, longest: int = 80) -> str:
    """The value as Python writes it, cut to `longest` characters."""
    try:
        return clip(repr(value), longest)
    except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return f"a {type(value).__name__} that is too large to show"
