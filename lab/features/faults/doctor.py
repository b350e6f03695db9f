"""Checks of `lab doctor` for links: which network faults the kernel supports in a container."""

from __future__ import annotations

from collections.abc import Mapping

from lab.engine.doctor import Check

PROGRAM = """
from labnode.features.faults.on_node import shaping
try:
    can |= {kind: shaping.Shaping(1).supports(kind) for kind in ("htb", "netem")}
    shaping.replace_rules({"192.0.2.1": {"loss": 0.5, "reset": 1}}, {"192.0.2.1": 0.5}, names=False)
    can["filters"] = True
except OSError:
    pass
"""
"""Fills `can`; it can import the modules of nodes."""


_LATE = "delay, jitter, corrupt, and reorder"
_FILTERED = "loss, duplicate, partition, reset, dns, disconnect, and power_off"
_NEEDED = (
    ("htb", "htb", "rates", "rates of links", "sch_htb"),
    ("netem", "netem", _LATE, f"{_LATE} of links", "sch_netem"),
    ("filters", "nf_tables", _FILTERED, _FILTERED, "nf_tables"),
)
"""Key of `can`, its name, the faults that need it, the faults that fail without it, and the kernel module."""


def link_checks(can: Mapping[str, bool]) -> list[Check]:
    """Return a check for each capability of nodes' links."""
    return [
        Check.judge(
            name,
            f"the kernel supports {works} of links" if can.get(kind) else f"the kernel does not support {lost}",
            not can.get(kind),
            f"load the module {module}, or use another kernel",
        )
        for kind, name, works, lost, module in _NEEDED
    ]
