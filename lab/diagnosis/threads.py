"""Threads of ranks that ended by an error: Python prints it, and the script goes on without what they would do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from lab.diagnosis.finding import Finding
from lab.diagnosis.rank_facts import RankFacts
from lab.node.messages.agent import ThreadRaised
from lab.words import clip, name_ranks, plural

_LONGEST = 120
"""Letters of an error that are shown."""


def after_a_thread(rank: RankFacts) -> str:
    """`, after a thread of it had raised KeyError: 'no' at load.py:5`; empty where none had."""
    return f", after a thread of it had {_told(rank.threads[0])}" if rank.threads else ""


def find_ended_threads(ranks: Iterable[RankFacts]) -> list[Finding]:
    """A finding for each error by which threads ended, with the ranks whose threads they were."""
    alike: dict[str, list[ThreadRaised]] = defaultdict(list)
    for rank in ranks:
        for one in rank.threads:
            alike[_told(one)].append(one)
    return [
        Finding(
            kind="thread",
            sentence=f"{_whose(ones)} {told}, and the script went on without {'it' if len(ones) == 1 else 'them'}.",
            others=tuple(sorted({one.rank for one in ones})),
            lines=tuple(one.at for one in ones),
        )
        for told, ones in alike.items()
    ]


def _whose(ones: list[ThreadRaised]) -> str:
    ranks = {one.rank for one in ones}
    many = "A thread" if len(ones) == 1 else "Threads" if len(ones) == len(ranks) else plural(len(ones), "thread")
    return f"{many} of {name_ranks(ranks)}"


def _told(one: ThreadRaised) -> str:
    return f"raised {clip(one.error.partition(chr(10))[0], _LONGEST)}{f' at {one.at}' if one.at else ''}"
