from __future__ import annotations

import json
import subprocess
import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from lab.errors import RanksFailed
from lab.features.functions.answers import caught_as, rebuild_error
from lab.features.functions.on_node.messages import Failure


class Needs(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code, detail)


class NeedsOfSystem(OSError):
    def __init__(self, code: int, detail: str, more: str) -> None:
        super().__init__(code, detail)


class Made(Exception):
    def __new__(cls, code: int) -> Made:
        return super().__new__(cls, code)


class Tells(Exception):
    @property
    def message(self) -> str:
        return "its own"


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Final(Exception):
    def __init_subclass__(cls, **more: Any) -> None:
        raise ValueError("nothing may inherit from it")


class Outer:
    class Inner(Exception):
        pass


OTHERS = [
    json.JSONDecodeError,
    UnicodeDecodeError,
    subprocess.CalledProcessError,
    StopIteration,
    SyntaxError,
    Exception,
]


def rebuilt(kind: type[BaseException], text: str = "text") -> RanksFailed:
    return rebuild_error(Failure(kind.__module__, kind.__qualname__, text, ()), {}, header="rank 1: ", ranks=[1])


@pytest.mark.parametrize("kind", [Needs, NeedsOfSystem, Made, Tells, Frozen, Outer.Inner, *OTHERS])
def test_what_was_raised_is_caught_by_its_class_whatever_that_takes(kind: type[Exception]) -> None:
    error = rebuilt(kind)
    assert isinstance(error, kind)
    assert (error.message, str(error), error.ranks, error.hint) == ("rank 1: text", "rank 1: text", (1,), "")
    assert traceback.format_exception_only(error)[-1].endswith(f"{kind.__name__}: rank 1: text\n")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Final])
def test_where_no_exception_can_be_of_both_classes_the_other_is_named(kind: type[BaseException]) -> None:
    assert caught_as(kind) is RanksFailed
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    assert str(rebuilt(kind)) == f"rank 1: {name}: text"
    assert str(rebuilt(kind, "")) == f"rank 1: {name}"
