"""The key `launcher` of a scenario: what starts its workers, and what that is told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lab.errors import UsageError
from lab.feature import load
from lab.spec import kinds
from lab.spec.declare import dump_keys, key, keys_of, read_keys
from lab.spec.launching import Launcher, Launching, find_launcher, launcher_names
from lab.spec.reading import Value, did_you_mean

RESTARTS = kinds.whole_number(0, 1000)


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What the lab itself is told, as a launcher."""

    max_restarts: int = key(0, RESTARTS, "max_restarts: 1")
    """So often all workers are started again after a failure; a node that was lost is started before."""


def launcher() -> kinds.Kind:
    """The name of a launcher, or a mapping from it to what it is told."""
    names = launcher_names()
    declared = {name: load(found.declares) for name, found in _there(names).items() if found.declares}
    allowed = f"{', '.join(names)}, or a mapping from {' or '.join(declared)} to what it is told"

    def read(value: Value) -> Launching:
        if value.kind != "mapping":
            word = kinds.read_text(value, allowed, quotable=False)
            if word not in names:
                raise value.refused(allowed, did_you_mean(word, names))
            _check(value, word)
            return Launching(name=word)
        pairs = value.pairs(allowed)
        if len(pairs) != 1:
            raise value.refused(allowed, f" with {len(pairs)} keys")
        name_value, told = pairs[0]
        name = name_value.as_key()
        if name in names:
            _check(name_value, name)
        if name not in declared:
            raise name_value.problem(f"unknown key {name!r}{did_you_mean(name, declared)}; allowed: {allowed}")
        settings = declared[name](**read_keys(told, declared[name]))
        wrong = settings.problem() if hasattr(settings, "problem") else ""
        if wrong:
            raise told.problem(wrong)
        return Launching(name, settings if settings != declared[name]() else None)

    def dump(data: Launching) -> Any:
        told = dump_keys(data.settings) if data.settings is not None else {}
        return {data.name: told} if told else data.name

    told = {"type": "object", "additionalProperties": False}
    sections = {
        name: {**told, "properties": {key.name: key.kind.schema for key in keys_of(one).values()}}
        for name, one in declared.items()
    }
    mapping = {**told, "properties": sections, "minProperties": 1, "maxProperties": 1}
    return kinds.Kind(allowed, read, {"anyOf": [{"enum": names}, mapping]}, dump)


def _there(names: Sequence[str]) -> dict[str, Launcher]:
    found = {}
    for name in names:
        with suppress(UsageError):
            found[name] = find_launcher(name)
    return found


def _check(value: Value, name: str) -> None:
    """Refuse a launcher whose feature is not there."""
    try:
        find_launcher(name)
    except UsageError as error:
        raise value.problem(error.message) from None
