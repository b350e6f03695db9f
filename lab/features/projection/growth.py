"""How a run becomes larger: which of its groups grow, what their calls then carry, and what becomes of own work.

Data parallel groups grow: those that reduce gradients, or else those over which parameters are sharded, and the group
of all ranks. Others (tensor parallel ones, the stages of a pipeline) stay as they are, and there are more of them. A
run whose ranks only exchange messages is a pipeline, which gets more stages (`lab.features.projection.stages`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from lab.errors import LabError
from lab.features.projection.actions import Transfer
from lab.features.projection.costs import Pattern, pattern_of
from lab.features.projection.program import OPTIMIZER, Program
from lab.operations import operation
from lab.trace.model import Trace
from lab.words import plural

_MOST_STAGES = 512
"""Deeper pipelines are not built, and would take long to replay."""
_SHARDING = {Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What grows."""

    groups: frozenset[str] = frozenset()
    """Names of the groups that grow with the world."""
    sharded: frozenset[str] = frozenset()
    """Of them, those over which parameters are sharded."""
    replica: int = 1
    """Ranks that are there together or not at all: a larger world has a multiple of them."""
    most: int = 1 << 20
    """Ranks beyond which nothing is said."""
    stages: bool = False
    """Whether it is a pipeline that gets more stages."""
    assumed: tuple[str, ...] = ()
    """What is taken for granted, a sentence each."""

    def size(self, transfer: Transfer, factor: float) -> float:
        """What a transfer carries in a world so many times as large, as nccl-tests counts it."""
        if transfer.group not in self.groups or transfer.group in self.sharded:
            return transfer.size
        pattern = pattern_of(operation(transfer.op))
        return transfer.size * (factor if pattern in (Pattern.ALL_GATHER, Pattern.PARTS) else 1.0)

    def work(self, phase: str, factor: float) -> float:
        """By what own work is multiplied: the optimizer has only its shard."""
        return 1 / factor if self.sharded and phase == OPTIMIZER else 1.0


def growth_of(program: Program, trace: Trace) -> Growth:
    """What grows when a run gets more ranks.

    Raises:
        LabError: nothing of it is data parallel, and it is no pipeline either.
    """
    messages = {key: one for key, one in program.transfers.items() if _is_message(one)}
    by_group: dict[str, list[Transfer]] = defaultdict(list)
    for key, transfer in program.transfers.items():
        if key not in messages:
            by_group[transfer.group].append(transfer)
    world = {name for name, calls in by_group.items() if len(calls[0].ranks) == program.ranks}
    patterns = {name: {pattern_of(operation(call.op)) for call in calls} for name, calls in by_group.items()}
    sharded = {name for name, found in patterns.items() if _SHARDING.issubset(found)}
    reducing = {name for name in by_group.keys() - world - sharded if _reduces(name, by_group[name], trace)}
    grown = world | (reducing or sharded - world)
    if not grown:
        if messages and not by_group:
            return Growth(
                stages=True, most=_MOST_STAGES, assumed=("the pipeline gets more stages, each like those on record",)
            )
        raise LabError(
            "this run cannot be projected: none of its groups is data parallel, so none is known to grow",
            "a group grows that has all ranks, that reduces gradients outside of forward, or over which FSDP shards",
        )
    kept = {name: calls for name, calls in by_group.items() if name not in grown}
    replica = 1 if world == grown and not messages and not kept else _replica(program, grown)
    return Growth(
        groups=frozenset(grown),
        sharded=frozenset(sharded & grown),
        replica=replica,
        assumed=tuple(_assumed(program, trace, grown, sharded & grown, kept, bool(messages))),
    )


def _is_message(transfer: Transfer) -> bool:
    return pattern_of(operation(transfer.op)) is Pattern.MESSAGE


def _reduces(name: str, calls: list[Transfer], trace: Trace) -> bool:
    if any(module.group == name for rank in trace.ranks.values() for module in rank.modules):
        return True
    return any(
        pattern_of(operation(call.op)) is Pattern.ALL_REDUCE and call.phase != "forward" for call in calls
    ) and all(call.phase != "forward" for call in calls)


def _replica(program: Program, grown: set[str]) -> int:
    """Ranks of a copy of what does not grow: all that one rank of each growing group does not count."""
    sizes = [len(one.ranks) for one in program.transfers.values() if one.group in grown]
    smaller = [size for size in sizes if size < program.ranks]
    return program.ranks // max(smaller) if smaller else program.ranks


def _assumed(
    program: Program,
    trace: Trace,
    grown: set[str],
    sharded: set[str],
    kept: Mapping[str, list[Transfer]],
    messages: bool,
) -> list[str]:
    def named(groups: set[str]) -> str:
        titles = sorted({trace.groups[name].label if name in trace.groups else name for name in groups})
        return ", ".join(titles[:3]) + (" and others" if len(titles) > 3 else "")

    said = [f"data parallel groups grow with the world ({named(grown)}); each rank's batch stays as large as it is"]
    if sharded:
        said.append(
            "parameters are sharded over all of their ranks: the bytes of all shards together stay, a rank's shard and "
            "the work of its optimizer shrink"
        )
    others = [
        one
        for one in program.transfers.values()
        if one.group in grown - sharded and pattern_of(operation(one.op)) in (Pattern.ALL_GATHER, Pattern.PARTS)
    ]
    if others:
        said.append("what is gathered or scattered otherwise has as much of each rank as on record, so more in all")
    if kept or messages:
        what = [plural(len(kept), "other group")] if kept else []
        what += ["the pipeline"] if messages else []
        said.append(f"{' and '.join(what)} stay as they are, and there are more of them")
    return said
