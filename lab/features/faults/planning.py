"""Whether the faults of a run can be done: by its engine, to nodes and ranks that take part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lab.errors import UsageError
from lab.features.faults.fault import START, Fault, broken_in, detected_within, fault_data, fault_sentence, with_faults
from lab.features.faults.kinds.links import WholeNetwork
from lab.features.faults.network import Network, network_of
from lab.words import listing

if TYPE_CHECKING:
    from lab.plan.cluster import ClusterInfo
    from lab.plan.plan import PlanOptions
    from lab.run.options import RunOptions
    from lab.spec.scenario import Scenario


class FaultsPart:
    """The faults of a plan."""

    name = "faults"
    companion = "lab.features.faults.companion:Faults"

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)

    def data(self) -> list[dict[str, Any]]:
        """Each as a file would say it."""
        return [fault_data(fault) for fault in self.faults]

    def sentences(self) -> list[str]:
        """A line for each."""
        return [f"fault: {fault_sentence(one)}" for one in self.data()]

    def before(self) -> dict[str, bool]:
        """Nodes that it stops or starts before the run begins, and whether each runs then."""
        return {node: bool(fault.what.leaves_running) for fault in self._before() for node in fault.what.nodes}

    def stopping(self, nodes: Iterable[str]) -> list[str]:
        """Those that stop any of these nodes before the run begins."""
        stopped = {*nodes}
        return [str(fault) for fault in self._before() if stopped & {*fault.what.nodes}]

    def starting(self) -> list[str]:
        """Those that start nodes while the run goes on."""
        return [str(fault) for fault in self.faults if fault.what.leaves_running and fault not in self._before()]

    def _before(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.when == START and fault.what.leaves_running is not None]


def plan_faults(
    scenario: Scenario, options: PlanOptions, cluster: ClusterInfo, nnodes: int, world_size: int
) -> FaultsPart | None:
    """What is broken on purpose in a run, and its network; None where neither is asked for.

    Raises:
        ScenarioError: what is asked for is no network.
        UsageError: the run cannot have it.
    """
    said = broken_in(scenario)
    faults = network_first(said.network, options.network, (*said.faults, *options.faults))
    if not faults and detected_within(scenario.expect) is None:
        return None
    off = "LAB_RECORDER is off" if scenario.env.get("LAB_RECORDER") == "off" else ""
    unrecorded = off if options.trace and scenario.trace.on else "its calls are not recorded"
    strict = cluster.shape.strict
    refuse_faults(faults, scenario.name, cluster.engine, nnodes, world_size, unrecorded, strict=strict)
    return FaultsPart(faults)


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
    return next((f"{fault}, which {why}" for fault in faults if (why := fault.what.why_not(engine))), "")


def beyond_engine(scenario: Scenario, engine: str) -> str:
    """Why an engine cannot do what is to be broken in a scenario; empty where it can."""
    said = broken_in(scenario)
    return beyond(network_first(said.network, None, said.faults), engine)


def once_more(scenario: Scenario, options: RunOptions) -> tuple[Scenario, RunOptions] | None:
    """A scenario without its faults, and options without any, where it says that it is run once more; else None."""
    said = broken_in(scenario)
    if not (said.rerun and said.faults):
        return None
    return with_faults(scenario, ()), replace(options, faults=(), fresh=False)


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
