"""Fault code for nodes: actions of agents, faults that a worker injects itself, and conditions of links."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

ACTIONS: dict[str, str] = {
    **dict.fromkeys(("hog", "loader", "shutdown", "signal"), "actions"),
    **dict.fromkeys(("cable", "links", "link_probe"), "links"),
    "disk": "write_filter",
}
"""The module with the functions of each action, by the name of the action."""
HOOKS = {
    "agent": "actions:Actions",
    "worker": "holds:arm_holds",
    "noted": "holds:noted",
    "recording": "holds:hold_compiled_calls",
    "group_class": "holds:hold_python_calls",
}
SLOW = ("link_probe",)
"""Actions for which the agent forks a process."""
NO_NETEM = "its kernel has no netem, which delays, corrupts, and reorders packets"
LATE = ("delay_s", "jitter_s", "corrupt", "reorder")
"""Conditions that need netem."""


def merge_parts(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all conditions as one: the lowest rate, the sum of the delays, and the combined probabilities."""
    whole: dict[str, Any] = {"to": {}, "from": {}}
    for part in parts:
        for way in ("to", "from"):
            for address, asked in part.get(way, {}).items():
                whole[way][address] = combine_conditions(whole[way].get(address, {}), asked)
    rates = [part["rate_bits_per_s"] for part in parts if part.get("rate_bits_per_s")]
    return {**whole, "rate_bits_per_s": min(rates, default=None), "no_names": any(one.get("no_names") for one in parts)}


def _either(one: float, other: float) -> float:
    return 1 - (1 - one) * (1 - other)


_COMBINED: dict[str, Callable[[float, float], float]] = {
    "rate_bits_per_s": min,
    "delay_s": operator.add,
    "jitter_s": operator.add,
}


def combine_conditions(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return two conditions of the same packets as one."""
    both = {name: _COMBINED.get(name, _either)(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}
