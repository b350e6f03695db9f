"""The cost of operations on a network: rounds and bytes by algorithm, the algorithms of a library, and networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from lab.errors import UsageError
from lab.features.faults.network import PROFILES, parse_rate
from lab.operations import Cut, Operation, Who
from lab.spec.kinds import parse_duration


class Pattern(Enum):
    """Operations with the same cost."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    ONE_TO_ALL = "broadcast, reduce"
    PARTS = "gather, scatter"
    BARRIER = "barrier"
    MESSAGE = "message"


def pattern_of(op: Operation) -> Pattern:
    """Return the pattern of an operation; for an unknown one, the most costly pattern."""
    if op.sends or op.receives:
        return Pattern.MESSAGE
    if not op.moves_data:
        return Pattern.BARRIER
    if op.rooted:
        parts = op.cut is not Cut.WHOLE or (op.taker is Who.ROOT and not op.reduces)
        return Pattern.PARTS if parts else Pattern.ONE_TO_ALL
    if op.reduces:
        return Pattern.ALL_REDUCE if op.reduces_for_all else Pattern.REDUCE_SCATTER
    if op.cut is Cut.WHOLE:
        return Pattern.ALL_GATHER
    return Pattern.ALL_REDUCE if op.cut is Cut.OTHER else Pattern.ALL_TO_ALL


class Cost(NamedTuple):
    """The rounds and bytes of an algorithm."""

    rounds: float
    bytes: float
    far_rounds: float = 0.0
    """Rounds that go from rack to rack."""
    far_bytes: float = 0.0


class Layout(NamedTuple):
    """The ranks of a group, spread evenly over racks."""

    ranks: int
    racks: int = 1


Formula = Callable[[Layout, float], Cost]


def _log2(n: float) -> int:
    return math.ceil(math.log2(n)) if n > 1 else 0


def _part(n: float) -> float:
    """Return the share of a tensor that is not a rank's own."""
    return (n - 1) / n if n else 0.0


def _flat(rounds: Callable[[int], float], amount: Callable[[int], float]) -> Formula:
    """Return the formula of an algorithm that ignores racks: with several racks, each round crosses them."""

    def cost(layout: Layout, size: float) -> Cost:
        needs = rounds(layout.ranks), amount(layout.ranks) * size
        return Cost(*needs) if layout.racks == 1 else Cost(0.0, 0.0, *needs)

    return cost


def _halving_all_reduce(layout: Layout, size: float) -> Cost:
    """Return the cost of halving with the nearest first.

    If n is no power of two, the extra ranks hand in their tensors first and get the result at the end.
    """
    ranks, racks = layout
    n = 1 << (ranks.bit_length() - 1)
    beyond = 2.0 if n < ranks else 0.0
    near = n if racks == 1 else ranks / racks
    far = (2 * _log2(racks), 2 * _part(racks) * size / near) if racks > 1 else (0.0, 0.0)
    return Cost(2 * _log2(near) + beyond, (2 * _part(near) + beyond) * size, *far)


def _tree_all_reduce(layout: Layout, size: float) -> Cost:
    """Return the cost of two trees, up and down, each with half of the tensor in small pieces.

    The links between racks are the bottleneck.
    """
    ranks, racks = layout
    if racks == 1:
        return Cost(2 * _log2(ranks), 2 * size if ranks > 1 else 0.0)
    return Cost(2 * _log2(ranks / racks), 0.0, 2 * _log2(racks), 2 * size)


def _hierarchical(times: int) -> Formula:
    """Return the formula of rings within racks, between racks, and within racks again."""

    def cost(layout: Layout, size: float) -> Cost:
        near, racks = layout.ranks / layout.racks, layout.racks
        far = times * (racks - 1), times * _part(racks) * size / near
        return Cost(times * (near - 1), times * _part(near) * size, *far)

    return cost


RING, TREE, HALVING, HIERARCHICAL, DIRECT = "ring", "tree", "halving-doubling", "hierarchical", "direct"
REDUCED = "ring all_reduce"
"""A reduce_scatter in which all ranks get everything and keep their part."""
_TO_NEXT, _HALVES = _flat(lambda n: n - 1, _part), _flat(_log2, _part)
_TWICE_TO_NEXT = _flat(lambda n: 2 * (n - 1), lambda n: 2 * _part(n))
FORMULAS: Mapping[Pattern, Mapping[str, Formula]] = {
    Pattern.ALL_REDUCE: {
        RING: _TWICE_TO_NEXT,
        TREE: _tree_all_reduce,
        HALVING: _halving_all_reduce,
        HIERARCHICAL: _hierarchical(2),
    },
    Pattern.ALL_GATHER: {RING: _TO_NEXT, HALVING: _HALVES, HIERARCHICAL: _hierarchical(1)},
    Pattern.REDUCE_SCATTER: {RING: _TO_NEXT, REDUCED: _TWICE_TO_NEXT, HALVING: _HALVES, HIERARCHICAL: _hierarchical(1)},
    Pattern.ALL_TO_ALL: {DIRECT: _TO_NEXT},
    Pattern.ONE_TO_ALL: {
        TREE: _flat(_log2, _log2),
        RING: _flat(lambda n: n - 1, lambda n: n > 1),
        HALVING: _flat(lambda n: 2 * _log2(n), lambda n: 2 * _part(n)),
    },
    Pattern.PARTS: {DIRECT: _TO_NEXT, TREE: _HALVES},
    Pattern.BARRIER: {TREE: _flat(_log2, lambda _: 0.0)},
    Pattern.MESSAGE: {DIRECT: _flat(lambda _: 1, lambda _: 1.0)},
}
"""The formula for each pattern and algorithm: from a layout and a size, as nccl-tests counts it, to a cost."""

LIBRARIES = ("gloo", "nccl", "mpi")
_CHOICES: Mapping[Pattern, tuple[tuple[str, ...], ...]] = {
    Pattern.ALL_REDUCE: ((RING,), (RING, TREE, HIERARCHICAL), (HALVING, RING)),
    Pattern.ALL_GATHER: ((RING,), (RING, HIERARCHICAL), (HALVING, RING)),
    Pattern.REDUCE_SCATTER: ((REDUCED,), (RING, HIERARCHICAL), (HALVING, RING)),
    Pattern.ONE_TO_ALL: ((TREE,), (RING,), (TREE, HALVING)),
    Pattern.PARTS: ((DIRECT,), (DIRECT,), (TREE,)),
}
"""The algorithms of each library; all other patterns have one algorithm. Hierarchical ones need racks."""


def list_choices(library: str, pattern: Pattern, layout: Layout) -> dict[str, Formula]:
    """Return the algorithms among which a library chooses for a group."""
    formulas = FORMULAS[pattern]
    names = _CHOICES[pattern][LIBRARIES.index(library)] if pattern in _CHOICES else formulas
    return {name: formulas[name] for name in names if 1 < layout.racks < layout.ranks or name != HIERARCHICAL}


MEASURED = "measured"
ALPHA_S: Mapping[str, float] = {"lan-100g": 10e-6, "lan-400g": 10e-6}
"""Seconds per round on networks whose cards bypass the kernel; see docs/projection-model.md for the source."""
_ALPHA_OF_TCP_S = 50e-6
"""For all other networks; the delay of the profile is added."""
_BETWEEN = 0.1
"""The share of its rate that each rank has between racks, as in the profile `datacenter`."""
_RACKS = 2
"""Default of `datacenter`."""
_READERS: dict[str, Any] = {"racks": int, "rate": parse_rate, "between": parse_rate, "alpha": parse_duration}
_ALLOWED = (
    f"{MEASURED}, or a profile ({', '.join(PROFILES)}), followed by any of: "
    ",racks=N ,rate=100gbit ,between=10gbit ,alpha=10us"
)


class Target(NamedTuple):
    """A network in the terms of the model."""

    name: str
    alpha_s: float
    bandwidth: float
    """Bytes per second that a rank sends while it receives as many."""
    between: float
    """Bytes per second that a rank sends to other racks."""
    racks: int = 1

    def seconds(self, cost: Cost) -> float:
        """Return the time that a cost takes."""
        near = cost.rounds * self.alpha_s + cost.bytes / self.bandwidth
        return near + cost.far_rounds * self.alpha_s + cost.far_bytes / self.between


def parse_network(text: str) -> Target | None:
    """Parse the option `--network`; return None for the recorded network.

    Raises:
        UsageError: There is no such network, or one of its settings is invalid.
    """
    name, *rest = text.split(",")
    if name == MEASURED:
        if rest:
            raise UsageError(f"--network: found {text!r}; {MEASURED} has no settings, because the record has them")
        return None
    if name not in PROFILES:
        raise UsageError(f"--network: found {name!r}; allowed: {_ALLOWED}")
    profile, settings = PROFILES[name], dict[str, Any]()
    for word in rest:
        key, _, value = word.partition("=")
        if key not in _READERS or (key == "racks" and not (value.isdecimal() and int(value) > 0)):
            raise UsageError(f"--network: found {word!r}; allowed: {_ALLOWED}")
        settings[key] = _READERS[key](value)
    rate = settings.get("rate", profile.every.rate_bits_per_s or 0.0)
    between = settings.get("between", profile.between and profile.between.rate_bits_per_s)
    alpha_s = settings.get("alpha", ALPHA_S.get(name, _ALPHA_OF_TCP_S) + (profile.every.delay_s or 0.0))
    racks = settings.get("racks", _RACKS if profile.between is not None else 1)
    between = (_BETWEEN * rate if between is None else between) / 8
    return Target(name=text, alpha_s=alpha_s, bandwidth=rate / 8, racks=racks, between=between)
