"""What had to come before what: by cause, which is the same in every run of a script, and not by clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from lab.trace.model import Call

Path = Sequence[tuple[Call, int]]
"""The calls of one rank in the order in which it made them, each with the number of its step, from 0."""


def depths(paths: Sequence[Path], steps: int) -> list[int]:
    """Of each step, how many steps had to come before it, one after the other.

    A rank comes to a message with all that it had called before and that was over by then, to a collective with all
    that it had called before; times are compared for messages only, and each rank's with its own. So messages that are
    under way at once do not follow each other, whoever begins first. Where that leads around in a circle, a rank is
    taken not to have waited for what it had only begun; where even that does not help, as in a damaged trace, the step
    comes first to which a rank came first.
    """
    graph = _Graph(steps)
    for path in paths:
        _add(path, graph)
    return graph.depths(paths)


def _add(path: Path, graph: _Graph) -> None:
    """Everything that a rank's own calls say about what came before what."""
    behind = begun = -1  # what stands for all that is over; the last collective, where it had only begun
    last: dict[str, int] = {}  # by group: its last collective
    since: list[int] = []  # messages since the last collective
    under_way: list[tuple[float, int, int]] = []  # their ends, their steps, what was behind the rank when they began
    endless = False
    for call, step in path:
        over = []
        while under_way and under_way[0][0] <= call.begin:
            over.append(heappop(under_way))
        if len(over) == 1 and over[0][2] == behind:
            behind = over[0][1]
        elif over:
            behind = graph.join(behind, over=[message for _, message, _ in over])
        graph.add(behind, step)
        graph.add(begun, step, waited=False)
        if call.seq is None:
            since.append(step)
            if call.end is None:
                endless = True
            else:
                heappush(under_way, (call.end, step, behind))
            continue
        if begun >= 0:
            graph.add(last.get(call.group, -1), step)
        if since and (under_way or endless):
            graph.add(graph.join(behind, begun=since), step)
        since, endless, last[call.group] = [], False, step
        behind, begun = (behind, step) if call.asynchronous else (step, -1)


class _Graph:
    """Steps, and joints, which stand for several."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._after: list[list[int]] = [[] for _ in range(steps)]
        """What follows each; `~node` where it follows what had only begun."""
        self._over = [0] * steps
        """How many have to be over before each."""
        self._begun = [0] * steps
        """How many have to have begun before each."""

    def add(self, before: int, after: int, *, waited: bool = True) -> None:
        """One comes before the other; if it was waited for, it was over by then. Before -1 there is nothing."""
        if before < 0:
            return
        self._after[before].append(after if waited else ~after)
        (self._over if waited else self._begun)[after] += 1

    def join(self, behind: int, *, over: Iterable[int] = (), begun: Iterable[int] = ()) -> int:
        """A joint of all of these."""
        joint = len(self._after)
        self._after.append([])
        self._over.append(0)
        self._begun.append(0)
        for step in (behind, *over):
            self.add(step, joint)
        for step in begun:
            self.add(step, joint, waited=False)
        return joint

    def depths(self, paths: Sequence[Path]) -> list[int]:
        """The length of the longest way to each step."""
        nodes = range(len(self._after))
        depth, done, left = [0] * len(nodes), [False] * len(nodes), len(nodes)
        ready = [node for node in nodes if not self._over[node] + self._begun[node]]
        only_begun: list[tuple[bool, int, int]] = []

        def reach(node: int) -> None:
            if not self._begun[node]:
                ready.append(node)
            else:  # joints first: most circles go through messages that are under way for long
                heappush(only_begun, (node < self._steps, depth[node], node))

        for node in nodes:
            if self._begun[node] and not self._over[node]:
                reach(node)
        called = _as_called(paths)
        while left:
            while ready:
                node = ready.pop()
                done[node], left = True, left - 1
                for link in self._after[node]:
                    after, waited = (link, True) if link >= 0 else (~link, False)
                    if done[after]:
                        continue
                    depth[after] = max(depth[after], depth[node] + (after < self._steps))
                    (self._over if waited else self._begun)[after] -= 1
                    if not self._over[after] and (waited or not self._begun[after]):
                        reach(after)
            while only_begun and done[only_begun[0][2]]:
                heappop(only_begun)
            if only_begun:
                ready.append(heappop(only_begun)[2])
            elif left:
                ready.append(next(step for step in called if not done[step]))
        return depth[: self._steps]


def _as_called(paths: Sequence[Path]) -> Iterator[int]:
    """All steps, in the order of when in its own calls a rank came to them first."""
    turns = sorted((turn, rank, step) for rank, path in enumerate(paths) for turn, (_, step) in enumerate(path))
    yield from (step for _, _, step in turns)
