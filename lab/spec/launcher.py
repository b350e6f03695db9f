"""The key `launcher` of a scenario: what starts its workers, and what torchrun is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.spec import kinds
from lab.spec.declare import dump_keys, key, keys_of, read_keys
from lab.spec.launching import LAB, LAUNCHERS, TORCHRUN, Launching
from lab.spec.reading import Value, did_you_mean

_MAX_NODES = 1024
_NODES = kinds.whole_number(1, _MAX_NODES)
_RESTARTS = kinds.whole_number(0, 1000)


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What the lab itself is told, as a launcher."""

    max_restarts: int = key(0, _RESTARTS, "max_restarts: 1")
    """So often all workers are started again after a failure; a node that was lost is started before."""


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """What torchrun's agents are told."""

    min_nodes: int | None = key(None, _NODES, "min_nodes: 2", "all nodes of the run")
    """With so many nodes workers are started, and go on when others are lost."""
    max_nodes: int | None = key(None, _NODES, "max_nodes: 3", "all nodes of the run")
    """No more nodes than these take part at a time."""
    max_restarts: int = key(0, _RESTARTS, "max_restarts: 3")
    """So often the workers are started again after a failure."""
    monitor_interval_s: float = key(
        0.1, kinds.duration(3600), "monitor_interval: 0.5s", "`0.1s`", name="monitor_interval"
    )
    """How often each agent looks at its workers."""
    last_call_s: int = key(2, kinds.whole_number(1, 3600), "last_call: 30", name="last_call")
    """So many seconds agents that are enough wait for more of them; torchrun's own default is 30."""


_SETTINGS = {LAB: Lab, TORCHRUN: Torchrun}
"""What launchers can be told besides their name."""


def launcher() -> kinds.Kind:
    """The name of a launcher, or a mapping from it to what it is told."""
    allowed = f"{', '.join(LAUNCHERS)}, or a mapping from {' or '.join(_SETTINGS)} to what it is told"

    def read(value: Value) -> Launching:
        if value.kind != "mapping":
            word = kinds.read_text(value, allowed, quotable=False)
            if word not in LAUNCHERS:
                raise value.refused(allowed, did_you_mean(word, LAUNCHERS))
            return Launching(name=word)
        pairs = value.pairs(allowed)
        if len(pairs) != 1:
            raise value.refused(allowed, f" with {len(pairs)} keys")
        name_value, told = pairs[0]
        name = name_value.as_key()
        if name not in _SETTINGS:
            raise name_value.problem(f"unknown key {name!r}{did_you_mean(name, _SETTINGS)}; allowed: {allowed}")
        settings: Any = _SETTINGS[name](**read_keys(told, _SETTINGS[name]))
        if name == TORCHRUN and settings.min_nodes and settings.max_nodes and settings.min_nodes > settings.max_nodes:
            raise told.problem(f"min_nodes is {settings.min_nodes}, more than max_nodes, {settings.max_nodes}")
        said: dict[str, Any] = {name: settings} if settings != _SETTINGS[name]() else {}
        return Launching(name, **said)

    def dump(data: Launching) -> Any:
        settings = getattr(data, data.name) if data.name in _SETTINGS else None
        told = dump_keys(settings) if settings is not None else {}
        return {data.name: told} if told else data.name

    told = {"type": "object", "additionalProperties": False}
    sections = {
        name: {**told, "properties": {key.name: key.kind.schema for key in keys_of(declared).values()}}
        for name, declared in _SETTINGS.items()
    }
    one = {**told, "properties": sections, "minProperties": 1, "maxProperties": 1}
    schema = {"anyOf": [{"enum": list(LAUNCHERS)}, one]}
    return kinds.Kind(allowed, read, schema, dump)
