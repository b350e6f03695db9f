"""Checks of `lab doctor` for links: which network faults the kernel supports in a container."""

from __future__ import annotations

from collections.abc import Mapping

from lab.engine.doctor import Check

PROGRAM = """
from labnode.features.faults.on_node import shaping
try:
    can |= {kind: shaping.Shaping(1).supports(kind) for kind in ("htb", "netem")}
    shaping.replace_rules({"192.0.2.1": {"loss": 0.5, "reset": 1}}, {"192.0.2.1": 0.5}, names=False)
    can["nf_tables"] = True
except OSError:
    pass
"""
"""Fills `can`; it can import the modules of nodes."""


_NEEDED = {
    "htb": ("rates of links", "sch_htb"),
    "netem": ("delay, jitter, corrupt, and reorder of links", "sch_netem"),
    "nf_tables": ("loss, duplicate, partition, reset, dns, disconnect, and power_off", "nf_tables"),
}
"""By key of `can`: the faults that need it, and the kernel module."""


def link_checks(can: Mapping[str, bool]) -> list[Check]:
    """Return a check for each capability of nodes' links."""
    return [
        Check.judge(
            name,
            f"the kernel {'supports' if can.get(name) else 'does not support'} {faults}",
            not can.get(name),
            f"load the module {module}, or use another kernel",
        )
        for name, (faults, module) in _NEEDED.items()
    ]
