"""A key is declared once, and is read, refused and dumped by that declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.errors import ScenarioError
from lab.spec import kinds
from lab.spec.declare import dump_keys, key_field, keys_of, read_keys, section_kind
from lab.spec.reading import Reading, Value


@dataclass(frozen=True, kw_only=True)
class Inner:
    on: bool = True
    seconds: float = key_field(1.0, kinds.duration_kind(3600), "for: 2s", name="for")


@dataclass(frozen=True, kw_only=True)
class Outer:
    colour: str = key_field("red", kinds.choice_kind(("red", "blue")), "colour: blue", always=True)
    inner: Inner = key_field(Inner)
    made: Mapping[str, Any] = field(default_factory=dict)


def read(text: str) -> Outer:
    reading = Reading(Path("file.yaml"))
    with reading.attempt():
        reading.known.update(read_keys(Value(yaml.compose(text), "", reading), Outer))
    reading.raise_if_any()
    return Outer(**reading.known)


@pytest.mark.parametrize(
    ("text", "data", "dumped"),
    [
        ("{}", Outer(), {"colour": "red"}),
        ("{colour: blue}", Outer(colour="blue"), {"colour": "blue"}),
        ("inner: {for: 1m}", Outer(inner=Inner(seconds=60)), {"colour": "red", "inner": {"for": "60s"}}),
        ("inner: true", Outer(), {"colour": "red"}),
        ("inner: false", Outer(inner=Inner(on=False)), {"colour": "red", "inner": False}),
    ],
)
def test_what_is_declared_is_read_and_dumped(text: str, data: Outer, dumped: dict[str, Any]) -> None:
    assert read(text) == data
    assert dump_keys(data) == dumped
    assert read(yaml.safe_dump(dumped)) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("color: red", "1:1: unknown key 'color' (did you mean 'colour'?)"),
        ("made: {}", "1:1: unknown key 'made'; allowed: colour, inner"),
        ("for: 2s", "1:1: unknown key 'for', which belongs under 'inner:'"),
        ("inner: {four: 2s}", "1:9: inner: unknown key 'four' (did you mean 'for'?)"),
        ("inner: 3", "1:8: inner: found the number 3; allowed: true, false, or a mapping with the key for"),
    ],
)
def test_what_is_not_declared_is_refused_with_what_is(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        read(text)
    assert refusal.value.message == f"file.yaml:{message}"


def test_a_key_says_what_it_allows() -> None:
    declared = keys_of(Outer)
    assert list(declared) == ["colour", "inner"]
    assert declared["colour"].kind.schema == {"enum": ["red", "blue"]}
    assert declared["inner"].kind.allowed == section_kind(Inner).allowed
    assert keys_of(Inner)["for"].attribute == "seconds"
