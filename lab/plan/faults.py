"""Whether the faults of a run can be done: by its engine, to nodes and ranks that take part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.errors import UsageError
from lab.fault.fault import Fault
from lab.fault.kinds.network import WholeNetwork
from lab.fault.network import Network, network_of
from lab.fault.when import START
from lab.words import listing


def network_first(
    planned: Network | None, asked: str | Mapping[str, Any] | None, faults: Sequence[Fault]
) -> tuple[Fault, ...]:
    """The network of a run, before all that is broken in it: like a fault, it is made, read back and taken back.

    Raises:
        ScenarioError: what is asked for is no network.
    """
    like = planned if asked is None else network_of(asked)
    if like is None:
        return tuple(faults)
    return (Fault(what=WholeNetwork(like=like), when=START), *faults)


def beyond(faults: Sequence[Fault], engine: str) -> str:
    """Why an engine cannot do what is to be broken, as a sentence that begins with the fault; empty where it can."""
    return next((f"{fault}, which {fault.what.cannot[engine]}" for fault in faults if engine in fault.what.cannot), "")


def refuse_faults(
    faults: Sequence[Fault],
    name: str,
    engine: str,
    nnodes: int,
    world_size: int,
    unrecorded: str = "",
    *,
    strict: bool = False,
) -> None:
    """Refuse faults that this run cannot have.

    Args:
        unrecorded: why calls are not recorded, as the end of a sentence; empty: they are.
        strict: whether it runs on a strict cluster.

    Raises:
        UsageError: the engine cannot do one, or it is of a node or rank that does not take part.
    """
    nodes = [f"node{rank}" for rank in range(nnodes)]
    wrong = beyond(faults, engine)
    if wrong:
        raise UsageError(f"{name} is to {wrong}")
    for fault in faults:
        if strict and fault.what.strict_cannot:
            raise UsageError(f"{name} is to {fault}, which {fault.what.strict_cannot}", "run it without --strict")
        by_recorder = [one for one in (fault.when, fault.until) if one is not None and (one.op or one.phase)]
        if by_recorder and unrecorded:
            raise UsageError(
                f"{name} is to {fault} at a call or phase, where the recorder holds the rank, and {unrecorded}",
                "record the run, or set the fault off by a note, a line or a time",
            )
        absent = [node for node in fault.what.nodes if node not in nodes]
        if absent:
            there = "node0" if nnodes == 1 else f"node0 to {nodes[-1]}"
            takes = "does" if len(absent) == 1 else "do"
            raise UsageError(
                f"{name} is to {fault}, and {listing(absent)} {takes} not take part", f"the run has {there}"
            )
        for rank in (*fault.what.ranks, fault.when.rank or 0, (fault.until.rank or 0) if fault.until else 0):
            if rank >= world_size:
                raise UsageError(
                    f"{name} is to {fault}, and rank {rank} does not take part: world_size is {world_size}"
                )
