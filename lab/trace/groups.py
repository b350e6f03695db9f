"""What tells the groups of a run apart, and in what order each rank made and destroyed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lab.trace.model import Group, Mark, RankTrace


def tell_apart(groups: Mapping[str, Group]) -> dict[str, Group]:
    """The groups, given in the order in which they were made, so that no two have the same title."""
    turns: Counter[tuple[str, tuple[int, ...]]] = Counter()
    told = {}
    for name, group in groups.items():
        alike = group.label, tuple(sorted(group.ranks))
        turns[alike] += 1
        told[name] = replace(group, turn=turns[alike])
    labels = Counter(label for label, _ in {(group.label, group.ranks) for group in told.values()})
    return {name: replace(group, shared=labels[group.label] > 1) for name, group in told.items()}


@dataclass
class World:
    """What a rank did to groups from one init_process_group to the next."""

    begun: Mark
    """The init_process_group."""
    made: list[Mark] = field(default_factory=list)
    """Every new_group in which all ranks have to take part, in order."""
    destroyed: Mark | None = None
    """When it destroyed the default group, and all others with it."""


def worlds_of(rank: RankTrace, groups: Mapping[str, Group]) -> list[World]:
    """The worlds of a rank, in order."""
    worlds: list[World] = []
    for mark in rank.marks:
        if mark.name == "init_process_group":
            if not worlds or worlds[-1].destroyed is not None:
                worlds.append(World(mark))
            elif not worlds[-1].made:  # an attempt after one that failed; else it is refused
                worlds[-1].begun = mark
        elif worlds and mark.name == "new_group" and mark.members:
            worlds[-1].made.append(mark)
        elif worlds and is_end_of_world(mark, groups):
            worlds[-1].destroyed = mark
    return worlds


def is_end_of_world(mark: Mark, groups: Mapping[str, Group]) -> bool:
    """Whether a mark is the destruction of the default group."""
    group = groups.get(mark.group)
    return mark.name == "destroy_process_group" and (group is None or group.plain_label == "default")
