from __future__ import annotations

import enum
import json
import math
import random
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.functions.answers import Misread, read_value
from lab.features.functions.on_node import messages as call_values
from lab.features.functions.on_node.messages import HEAD, Unsendable, write_value
from tests.golden import golden

MORE = 1 << 20


class Point(NamedTuple):
    x: int
    y: list[int]


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Told:
    loss: float
    by_rank: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        CALLED.append(self)


@dataclass
class Ends:
    path: str = ""

    def __del__(self) -> None: ...


CALLED: list[object] = []


def there_and_back(value: Any) -> Any:
    return read_value(write_value(value, MORE))


numbers = st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
keys = st.text() | st.integers() | st.tuples(st.integers())
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner),
)


@given(plain)
def test_data_comes_back_as_it_was(value: Any) -> None:
    assert there_and_back(value) == value


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({"a"}),
        deque([1]),
        OrderedDict(b=1, a=2),
        Counter("aab"),
        bytearray(b"\x00\xff"),
        1 - 2.5j,
        datetime(2026, 1, 2, tzinfo=timezone.utc),
        date(2026, 1, 2),
        timedelta(seconds=1.5),
        Path("a/b"),
        Point(1, [2]),
        Colour.RED,
        1 << 80,
        -(1 << 80),
        math.inf,
        "\ud800",
    ],
    ids=repr,
)
def test_other_data_comes_back_with_its_type(value: Any) -> None:
    back = there_and_back([value])[0]
    assert (back, type(back)) == (value, type(value))


def test_a_dataclass_comes_back_without_running_anything_of_it() -> None:
    told = Told(0.5, {1: 2.0})
    CALLED.clear()
    assert there_and_back(told) == told
    assert CALLED == []


def test_what_is_not_data_is_named_with_its_place() -> None:
    with pytest.raises(Unsendable, match=golden(1)):
        write_value({"step": [1, print.__class__ and test_other_data_comes_back_with_its_type]}, MORE)


def test_what_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(Unsendable, match="100 deep"):
        write_value(ring, MORE)


def test_what_is_too_large_is_refused_and_the_limit_is_said() -> None:
    with pytest.raises(Unsendable, match="more than 1,048,576 bytes"):
        write_value(b"x" * (MORE + 1), MORE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('["named","os","system",["id"]]', "not a class of plain data"),
        ('["fields","subprocess","Popen",{"args":"id"}]', "not a class of plain data"),
        ('["fields","antigravity","X",{}]', "unknown here"),
        ('["enum","os","path.x","a"]', "unknown here"),
        ('["fields","lab.node.leftovers","Leftovers",{"_x":1}]', "unknown here|not a dataclass"),
        ('["__init__",1]', "not a kind"),
        ('["value",1]', "not a kind"),
        ('{"a":1}', "a mapping where none"),
        ('["bytes",99999999]', "ends too early"),
        ('["bytes",-1]', "ends too early"),
        ('["dict",[[["list",[]],1]]]', "unhashable"),
        ("[" * 100_000, "nested too deep|Expecting"),
        ('["list",' * 50_000, "nested too deep|Expecting"),
        ("[]", "not enough values"),
        ("[[]]", "unhashable"),
        ('["int","' + "f" * 10 + 'g"]', "invalid literal"),
        ('["complex","1+"]', "ValueError|malformed"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_value_are_refused(text: str, why: str) -> None:
    data = text.encode()
    with pytest.raises(Misread, match=why):
        read_value(HEAD.pack(len(data)) + data)


def test_a_class_that_does_something_at_its_end_is_refused() -> None:
    data = json.dumps(["fields", Ends.__module__, "Ends", {"path": "/"}]).encode()
    with pytest.raises(Misread, match=golden(1)):
        read_value(HEAD.pack(len(data)) + data)


def test_damaged_bytes_are_refused_or_are_another_value() -> None:
    chance = random.Random(0)
    whole = write_value({"a": [1, b"bytes", Point(1, [2]), Colour.RED], "b": Told(1.0)}, MORE)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read_value(bytes(damaged[: chance.randrange(len(damaged)) if chance.random() < 0.3 else None]))
        except Misread:
            pass


def test_more_text_than_can_be_read_cheaply_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    size = call_values.MOST_PLAIN_BYTES
    with pytest.raises(Misread, match="more than"):
        read_value(HEAD.pack(size + 1) + b" " * (size + 1))
    monkeypatch.setattr(call_values, "MOST_PLAIN_BYTES", 10)
    with pytest.raises(Unsendable, match=golden(1)):
        write_value([1] * 100, MORE)
