"""The lab's own frozen dataclasses do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import asdict, field, fields, replace
from typing import Any

import pytest

from lab.frozen import Frozen


class Ours(Frozen):
    """One of ours."""

    size: int
    name: str = "a"
    parts: tuple[str, ...] = field(default_factory=tuple)


class Further(Ours):
    """One that has what another has, and a method of its own in the place of a shared one."""

    more: float = 0.5

    def __post_init__(self) -> None:
        if self.more < 0:
            raise ValueError("less than nothing")

    def __repr__(self) -> str:
        return "further"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Theirs:
    """The same from the standard library."""

    size: int
    name: str = "a"
    parts: tuple[str, ...] = field(default_factory=tuple)


@pytest.mark.parametrize("given", [{"size": 1}, {"size": 2, "name": "b"}, {"size": 3, "parts": ("x", "y")}])
def test_they_hold_and_show_the_same(given: dict[str, Any]) -> None:
    ours, theirs = Ours(**given), Theirs(**given)
    assert asdict(ours) == asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert hash(ours) == hash(theirs)
    assert [each.name for each in fields(Ours)] == [each.name for each in fields(Theirs)]
    assert asdict(replace(ours, name="z")) == asdict(replace(theirs, name="z"))
    assert pickle.loads(pickle.dumps(ours)) == copy.deepcopy(ours) == ours != replace(ours, size=9)
    assert ours != theirs


def test_those_that_extend_another_have_its_fields_too() -> None:
    further = Further(size=1)
    assert asdict(further) == {"size": 1, "name": "a", "parts": (), "more": 0.5}
    assert repr(further) == "further"
    assert further != Ours(size=1)
    with pytest.raises(ValueError, match="less than nothing"):
        replace(further, more=-1.0)


def test_nothing_of_them_changes() -> None:
    ours: Any = Ours(size=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="size"):
        ours.size = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="size"):
        del ours.size
    assert ours.size == 1


@pytest.mark.parametrize(
    ("given", "said"), [({}, "Ours needs size"), ({"size": 1, "sise": 2}, "unexpected keyword argument sise")]
)
def test_what_is_missing_or_unknown_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Ours(**given)
