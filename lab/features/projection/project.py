"""Puts a projection together: runs in, the step time of larger worlds out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from lab.errors import LabError
from lab.features.projection.actions import Action, Key, Transfer, Work
from lab.features.projection.costs import Layout, Pattern, choices, pattern_of
from lab.features.projection.fitted import Fit, fit_all, pooled_error, recorded_algorithm, recorded_cost
from lab.features.projection.flights import AT_ONCE
from lab.features.projection.growth import Growth, growth_of, pipeline_of, with_stages
from lab.features.projection.networks import MEASURED, Target
from lab.features.projection.replay import Machine, Replayed, World, replay
from lab.features.projection.result import Call, Projection, Row
from lab.features.projection.source import Source
from lab.operations import operation
from lab.words import plural

PLAYERS = 32
"""So many ranks are replayed at most; where there are more, each stands for several."""
WORLDS = (8, 64, 512, 4096)
"""Where nobody says which."""
_PROFILE_ERROR = 0.25
"""By what part transfers may take longer or shorter over a network that nobody has measured."""
_WIDENING = 0.25
"""By what part of itself an interval is wider for each doubling of the ranks on record."""


def project(
    sources: Sequence[Source],
    ranks: Sequence[int] | None,
    target: Target | None,
    library: str | None = None,
    others: float | None = None,
) -> Projection:
    """What a training step takes in worlds of so many ranks.

    Args:
        sources: runs of the same training; the one with most ranks is replayed, all tell of the network.
        ranks: sizes of the worlds; None: those of `WORLDS` that the runs can be projected to.
        target: their network, where each rank has cores of its own; None: the one on record, with its cores.
        library: what chooses among algorithms; None: that of the record on its network, and nccl elsewhere.
        others: programs that want a core beside the ranks, on the machine of the record; None: as many as on record.

    Raises:
        LabError: the runs are not of one training, or cannot be projected to such a world.
    """
    sources = sorted(sources, key=lambda source: source.program.ranks)
    base = sources[-1]
    for source in sources:
        _check_alike(source, base)
    growth = growth_of(base.program, base.trace)
    used = {transfer.op for transfer in base.program.transfers.values()}
    samples = [sample for source in sources for sample in source.samples if sample.op in used]
    fits = fit_all(samples, base.library, any(source.crowded for source in sources))
    recorded = _Network(None, base.library, base.library, fits)
    network = recorded if target is None else _Network(target, library or "nccl", base.library, fits)
    checks = [_check(source, growth, recorded) for source in sources]
    off = max(abs(math.log((row.measured_s or row.step_s) / row.step_s)) for row in checks)
    sizes = ranks or [count for count in WORLDS if not count % growth.replica and count <= growth.most]
    machines = _machines(sources, others) if target is None else []
    return Projection(
        runs=tuple((source.run, source.program.ranks) for source in sources),
        network=target.name if target is not None else MEASURED,
        library=network.library,
        machine=machines[0] if machines else None,
        fits=fits,
        error=network.error,
        checks=tuple(checks),
        rows=tuple(_row(base, count, growth, network, machines, off) for count in sorted(set(sizes))),
        assumed=growth.assumed,
        steps=len(base.program.steps_s),
        left_out=base.program.left_out,
    )


def _machines(sources: Sequence[Source], others: float | None) -> list[Machine]:
    """That of the largest run, with as many others on it as beside the runs on average, as few, and as many at most."""
    base = sources[-1].machine
    if base is None:
        return []
    found = [source.machine.others for source in sources if source.machine is not None]
    told = [sum(found) / len(found), min(found), max(found)] if others is None else [others]
    return [replace(base, others=one) for one in told]


def _check_alike(one: Source, other: Source) -> None:
    ops = [Counter(transfer.op for transfer in source.program.transfers.values()) for source in (one, other)]
    if ops[0].keys() != ops[1].keys():
        told = [", ".join(sorted(found)) for found in ops]
        raise LabError(
            f"runs {one.run} and {other.run} are not of one training: "
            f"in a step, the first calls {told[0]}, the second {told[1]}",
            "give runs of the same script with different numbers of ranks",
        )


@dataclass(frozen=True, slots=True)
class _Network:
    """What transfers take: as they were measured, or as a network would have it."""

    target: Target | None
    library: str
    recorded: str
    """The library of the record."""
    fits: Mapping[str, Fit]

    @property
    def error(self) -> float:
        """By what part it may be off."""
        return pooled_error(self.fits.values()) if self.target is None else _PROFILE_ERROR

    @property
    def spread(self) -> dict[str, tuple[float, ...]]:
        """How its calls vary, by operation; of a network that was not measured nobody knows."""
        return {op: fit.spread for op, fit in self.fits.items()} if self.target is None else {}

    def recorded_s(self, op: str, ranks: int, size: float) -> float:
        """What such a call ought to have taken on record."""
        cost = recorded_cost(op, ranks, size, self.recorded)
        return self.fits[op].line.seconds(cost.rounds, cost.bytes) if ranks > 1 and op in self.fits else 0.0

    def call(self, op: str, ranks: int, size: float, grown: bool) -> Call:
        """How long one takes, and by what algorithm."""
        if self.target is None:
            return Call(op=op, ranks=ranks, bytes=size, count=1, seconds=self.recorded_s(op, ranks, size),
                        algorithm=recorded_algorithm(op, self.recorded))  # fmt: skip
        pattern = pattern_of(operation(op))
        layout = Layout(ranks, min(self.target.racks, ranks) if grown else 1)
        named = choices(self.library, pattern, layout)
        taken = {name: self.target.seconds(formula(layout, size)) for name, formula in named.items()}
        algorithm = min(taken, key=lambda name: taken[name])
        return Call(op=op, ranks=ranks, bytes=size, count=1, seconds=taken[algorithm], algorithm=algorithm)


@dataclass(frozen=True, slots=True)
class _Grown:
    """The programs and transfers of a world."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    transfers: Mapping[Key, Transfer]
    calls: Mapping[Key, Call]
    parts: Mapping[Key, Sequence[Mapping[int, float]]]
    common: frozenset[str]
    copies: int
    weight: float
    carrying: float

    def replayed(self, machine: Machine | None, network: _Network, slower: float = 1.0) -> Replayed:
        return replay(
            World(
                turns=self.turns,
                transfers=self.transfers,
                parts=self.parts if network.target is None else {},
                spread=network.spread,
                at_once=AT_ONCE.get(network.library, 1),
                carrying=self.carrying,
                seconds={key: call.seconds * slower for key, call in self.calls.items()},
                copies=self.copies,
                common=self.common,
                weight=self.weight,
                machine=machine,
            )
        )


def _grow(source: Source, ranks: int, growth: Growth, network: _Network) -> _Grown:
    program, factor = source.program, ranks / source.program.ranks
    transfers: Mapping[Key, Transfer] = program.transfers
    turns: Mapping[int, Sequence[Sequence[Action]]] = program.turns
    copies, weight = 1, 1.0
    if growth.stages:
        if ranks != program.ranks:
            turns, transfers = with_stages(program, pipeline_of(program), ranks)
    else:
        copies = max(1, min(math.ceil(factor), PLAYERS // program.ranks))
        weight = factor / copies
        turns = {
            rank: [[_scaled(action, growth, factor) for action in actions] for actions in steps]
            for rank, steps in program.turns.items()
        }
    calls = {}
    for key, transfer in transfers.items():
        grown = transfer.group in growth.groups and pattern_of(operation(transfer.op)) is not Pattern.MESSAGE
        size = max(1, round(len(transfer.ranks) * factor)) if grown else len(transfer.ranks)
        calls[key] = network.call(transfer.op, size, growth.size(transfer, factor), grown)
    common = frozenset(
        key.lane
        for key, transfer in transfers.items()
        if transfer.group in growth.groups and pattern_of(operation(transfer.op)) is not Pattern.MESSAGE
    )
    parts = {
        key: [{rank: one / ought for rank, one in of_step.items()} for of_step in program.took_s.get(key, ())]
        for key, transfer in transfers.items()
        if (ought := network.recorded_s(transfer.op, len(transfer.ranks), transfer.size)) > 0
    }
    return _Grown(turns, transfers, calls, parts, common, copies, weight, source.carrying)


def _scaled(action: Action, growth: Growth, factor: float) -> Action:
    if isinstance(action, Work):
        return action.times(growth.work(action.phase, factor))
    return action


def _check(source: Source, growth: Growth, network: _Network) -> Row:
    """A world on record, replayed."""
    ranks = source.program.ranks
    own = growth if growth.stages else growth_of(source.program, source.trace)
    return _told(
        source,
        ranks,
        _grow(source, ranks, own, network),
        [source.machine] if source.machine else [],
        network,
        0.0,
        source.program.steps_s,
    )


def _row(source: Source, ranks: int, growth: Growth, network: _Network, machines: Sequence[Machine], off: float) -> Row:
    if ranks % growth.replica or not 2 <= ranks <= growth.most:
        allowed = f"multiples of {growth.replica}" if growth.replica > 1 else "2 and more"
        raise LabError(
            f"run {source.run} cannot be projected to {ranks:,} ranks; allowed: {allowed}, up to {growth.most:,}",
            f"{plural(growth.replica, 'rank')} hold a copy of the model together" if growth.replica > 1 else "",
        )
    same = ranks == source.program.ranks and network.target is None
    return _told(
        source,
        ranks,
        _grow(source, ranks, growth, network),
        machines,
        network,
        off,
        source.program.steps_s if same else (),
    )


def _told(
    source: Source,
    ranks: int,
    grown: _Grown,
    machines: Sequence[Machine],
    network: _Network,
    off: float,
    measured_s: Sequence[float],
) -> Row:
    machine = machines[0] if machines else None
    found = grown.replayed(machine, network)
    fast, slow = (grown.replayed(machine, network, 1 + sign * network.error).step_s for sign in (-1, 1))
    least, most = (grown.replayed(one, network).step_s for one in machines[1:] or (machine, machine))
    moved, beside = ((high - low) / 2 / found.step_s for low, high in ((fast, slow), (least, most)))
    distance = 1 + _WIDENING * max(0.0, math.log2(ranks / source.program.ranks))
    wide = distance * math.sqrt(moved**2 + beside**2 + off**2 + _variation(source.program.steps_s) ** 2)
    kinds = Counter((call.op, call.ranks, call.bytes, call.algorithm, call.seconds) for call in grown.calls.values())
    return Row(
        ranks=ranks,
        step_s=found.step_s,
        low_s=found.step_s * math.exp(-wide),
        high_s=found.step_s * math.exp(wide),
        own_s=found.own_s,
        exposed_s=found.exposed_s,
        waiting_s=found.waiting_s,
        hidden_s=found.hidden_s,
        measured_s=median(measured_s) if measured_s else None,
        calls=tuple(
            Call(op=op, ranks=of, bytes=size, count=count, algorithm=algorithm, seconds=seconds)
            for (op, of, size, algorithm, seconds), count in kinds.items()
        ),
    )


def _variation(steps_s: Sequence[float]) -> float:
    """How far steps are from their median: the distance that two in three of them keep, as a part of it."""
    middle = median(steps_s)
    distances = sorted(abs(one - middle) / middle for one in steps_s)
    return distances[min(len(distances) - 1, math.ceil(0.68 * len(distances)) - 1)]
