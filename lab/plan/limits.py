"""What a node may use where nobody says: a part of the machine, so that a script cannot take the rest with it. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

from lab.node.messages.typed import Misfit, read
from lab.plan.room import Room
from lab.words import format_limit

_PART_FOR_ALL_NODES = 0.8
"""Of the machine's memory."""
_LEAST_MEMORY_BYTES = 1 << 30
_PROCESSES = 512
_PROCESSES_PER_CORE = 256
_STRICT_MEMORY_BYTES = 2 << 30
_STRICT_PROCESSES = 256
_STRICT_DISK_BYTES = 256 << 20
_PART_OF_THE_DISK = 0.5
"""Of what is free when the cluster is made."""
_LEAST_DISK_BYTES = 1 << 30
_DISK_BYTES = 16 << 30
"""Where nobody says what is free."""
_UNIT_BYTES = 256 << 20
"""Defaults are multiples of it, which read well."""


class Machine(NamedTuple):
    """What nodes run on."""

    cores: int
    memory_bytes: int
    free_disk_bytes: int | None = None
    """None: it does not say."""
    room: Room = Room()
    """What is left now of what nodes and ranks need."""


class Limits(NamedTuple):
    """What one node may use; None: as much as there is."""

    memory_bytes: int | None = None
    processes: int | None = None
    """Processes and threads together."""
    disk_bytes: int | None = None
    """What one run may write, or on a strict cluster what there is room for in each place that can be written to."""

    def to_json(self) -> str:
        """The limits as one line of text."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Limits:
        """The inverse of `to_json`; what another version of the lab wrote otherwise is no limit."""
        try:
            return read(cls, json.loads(text), lenient=True)
        except (ValueError, Misfit):
            return cls()

    def told(self) -> str:
        """The limits as a person reads them: `4 GiB of memory, 1,024 processes and threads, 8 GiB of disk`."""
        memory = f"{format_limit(self.memory_bytes)} of memory" if self.memory_bytes else "no limit of memory"
        count = f"{self.processes:,} processes and threads" if self.processes else "no limit of processes"
        disk = f"{format_limit(self.disk_bytes)} of disk" if self.disk_bytes else "no limit of disk"
        return f"{memory}, {count}, {disk}"


def limits_for(nodes: int, asked: Limits, machine: Machine, *, strict: bool = False) -> Limits:
    """What each of some nodes may use: what was asked for, else its part of the machine that they run on."""
    part = int(machine.memory_bytes * _PART_FOR_ALL_NODES / nodes)
    memory = min(max(part, _LEAST_MEMORY_BYTES), machine.memory_bytes)
    processes = _PROCESSES + _PROCESSES_PER_CORE * machine.cores
    disk = _DISK_BYTES
    if machine.free_disk_bytes is not None:
        disk = max(int(machine.free_disk_bytes * _PART_OF_THE_DISK / nodes), _LEAST_DISK_BYTES)
    if strict:
        memory, processes, disk = min(memory, _STRICT_MEMORY_BYTES), _STRICT_PROCESSES, _STRICT_DISK_BYTES
    return Limits(
        memory_bytes=asked.memory_bytes or memory // _UNIT_BYTES * _UNIT_BYTES,
        processes=asked.processes or processes,
        disk_bytes=asked.disk_bytes or disk // _UNIT_BYTES * _UNIT_BYTES,
    )
