"""What `lab doctor` says of links: what the kernel lets a container do to its own network, tried in one without any."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lab.engine.doctor import Check
from lab.features.faults.target import library

_LENT = "lent.json"
PROGRAM = f"""
from labnode.features.faults.on_node import actions
with open(folder + "/{_LENT}") as lent:
    actions.apply_library(None, {{"files": json.load(lent)}})
try:
    from labnode.features.faults.on_node import netlink
    with netlink.route() as route:
        can |= {{kind: netlink.Shaping(1, route).knows(kind) for kind in ("htb", "netem")}}
    with netlink.filters() as filters:
        asked = {{"loss": 0.5, "reset": 1}}
        netlink.replace(filters, netlink.set_rules({{"192.0.2.1": asked}}, {{"192.0.2.1": 0.5}}, names=False))
        can["filters"] = True
except OSError:
    pass
"""
"""Fills `can`; the files of `sent` and what nodes get are in `folder`."""


def sent() -> dict[str, bytes]:
    """What the program needs besides, by name."""
    return {_LENT: json.dumps(library()).encode()}


_LATE = "delay, jitter, corrupt and reorder"
_FILTERED = "loss, duplicate, partition, reset and dns"
_NEEDED = (
    ("htb", "htb", "rates", "rates of links", "sch_htb"),
    ("netem", "netem", _LATE, f"{_LATE} of links", "sch_netem"),
    ("filters", "nf_tables", _FILTERED, _FILTERED, "nf_tables"),
)
"""What the program finds out, its name, what works with it, what is lost without it, the module that has it."""


def checks(can: Mapping[str, bool]) -> list[Check]:
    """What links of nodes can be made to do."""
    return [
        Check("ok", name, f"{works} of links can be had")
        if can.get(kind)
        else Check(
            "warning",
            name,
            f"this kernel lacks it, so {lost} cannot be had",
            f"load the module {module}, or use another kernel",
        )
        for kind, name, works, lost, module in _NEEDED
    ]
