"""Processes that outlived the workers that started them, for the end of a run's reason."""

from __future__ import annotations

from collections.abc import Sequence

from lab.node.messages.agent import LeftRunning
from lab.words import clip, plural

_LONGEST_COMMAND = 80


def left_told(left: Sequence[LeftRunning]) -> str:
    """What follows the reason of a verdict; empty where nothing was left."""
    by_rank: dict[tuple[str, int | None], list[LeftRunning]] = {}
    for one in left:
        by_rank.setdefault((one.node, one.rank), []).append(one)
    return "".join(f"; {_sentence(node, rank, ours)}" for (node, rank), ours in by_rank.items())


def _sentence(node: str, rank: int | None, left: Sequence[LeftRunning]) -> str:
    who = f"rank {rank} left" if rank is not None else f"processes of {node} had left"
    commands = ", ".join(dict.fromkeys(clip(one.command, _LONGEST_COMMAND) for one in left))
    was = "was" if len(left) == 1 else "were"
    return f"{who} {plural(len(left), 'process', 'processes')} running, which {was} stopped: {commands}"
