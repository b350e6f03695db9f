"""How the words of arguments become values; an error is a sentence."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lab.errors import LabError
from lab.spec.scenario import MAX_TRACE_VALUES
from lab.spec.units import parse_age, parse_duration, parse_size

if TYPE_CHECKING:
    from lab.spec.volumes import Volume

T = TypeVar("T")


class OncePerName(argparse.Action):
    """Collects pairs of a name and a value; each name may be given once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take one."""
        name, value = values
        known = getattr(namespace, self.dest)
        if name in known:
            raise argparse.ArgumentError(self, f"{name} is given twice: {known[name]} and {value}")
        setattr(namespace, self.dest, {**known, name: value})


def _type(convert: Callable[[str], T]) -> Callable[[str], T]:
    """The conversion as argparse wants it: an error is a sentence."""

    def converted(word: str) -> T:
        try:
            return convert(word)
        except (LabError, ValueError) as error:
            raise argparse.ArgumentTypeError(getattr(error, "message", str(error))) from None

    return converted


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise ValueError(f"found {word!r}; allowed: a whole number, 1 or more")
    return int(word)


def _whole(word: str) -> int:
    if not (word.isdecimal() and word.isascii()) or len(word) > 9:
        raise ValueError(f"found {word!r}; allowed: a whole number, 0 or more")
    return int(word)


def _trace_values(word: str) -> int:
    if not (word.isdecimal() and word.isascii()) or len(word) > 9 or int(word) > MAX_TRACE_VALUES:
        raise ValueError(f"found {word!r}; allowed: a whole number from 0 to {MAX_TRACE_VALUES}")
    return int(word)


def _positive_float(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise ValueError(f"found {word!r}; allowed: a number above 0")
    return number


def _volume(word: str) -> Volume:
    from lab.spec.volumes import Volume, own_folder, plain_target  # few commands mount any

    source, colon, rest = word.partition(":")
    target, _, mode = rest.partition(":")
    path = Path(source).expanduser().resolve()
    if not colon or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"found {word!r}; allowed: HOST:NODE or HOST:NODE:ro, NODE an absolute path")
    if not path.exists():
        raise ValueError(f"there is no {path}")
    target = plain_target(target)
    problem = own_folder(target)
    if problem and target != str(path):
        raise ValueError(f"found {word!r}, but {problem}; mount it in /data, /mnt or a folder that nodes do not have")
    return Volume(source=path, target=target, read_only=mode == "ro")


def _variable(word: str) -> tuple[str, str]:
    from lab.spec.environment import name_problem

    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE")
    wrong = name_problem(name)
    if wrong:
        raise ValueError(wrong)
    return name, value


def _hosts(word: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in word.split(","))
    if "" in names or len({*names}) < len(names):
        raise ValueError(f"found {word!r}; allowed: names of hosts with commas between them, each once")
    return names


def _scheduled(word: str) -> tuple[str, str]:
    name, equals, value = word.removeprefix("--").partition("=")
    if not equals or not name.replace("-", "").isalnum():
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE, NAME the long name of an option of the scheduler")
    return name, value


def _data(word: str) -> tuple[str, Path]:
    from lab.spec.data import folder_problem, name_problem

    name, equals, folder = word.partition("=")
    if not equals or not folder:
        raise ValueError(f"found {word!r}; allowed: NAME=FOLDER")
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    wrong = name_problem(name) or folder_problem(path)
    if wrong:
        raise ValueError(wrong)
    return name, path


def _requirements(word: str) -> tuple[str, ...]:
    from lab.spec.packages import requirements_in

    return requirements_in(Path(word))


positive = _type(_positive)
whole = _type(_whole)
trace_values = _type(_trace_values)
positive_float = _type(_positive_float)
duration = _type(parse_duration)
age = _type(parse_age)
size = _type(parse_size)
volume = _type(_volume)
variable = _type(_variable)
hosts = _type(_hosts)
scheduled = _type(_scheduled)
data = _type(_data)
requirements = _type(_requirements)
