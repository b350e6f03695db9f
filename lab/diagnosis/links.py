"""Causes from outside: nodes that were paused or cut off, and ranks that a signal stopped.

Engines report paused nodes, agents report stopped workers, and kernels report connections, which features read. A node
is blamed if most nodes still reach each other and it reaches none of them.
"""

from __future__ import annotations

from collections.abc import Collection

from lab.diagnosis.evidence import Evidence, apply_rules
from lab.diagnosis.finding import Finding
from lab.diagnosis.wording import Outside


def find_external_causes(evidence: Evidence) -> list[Finding]:
    """Return everything from outside that still blocked ranks when the run was over."""
    facts, outside = evidence.facts, list[Finding]()
    for node, trouble in facts.troubled.items():
        if ranks := tuple(rank.rank for rank in facts.ranks if rank.node == node and not rank.left):
            disconnected = not trouble.silent
            outside.append(Outside(what="node", node=node, how=trouble.how, disconnected=disconnected, ranks=ranks))
    halted = [rank for rank in facts.ranks if rank.halted and not rank.left]
    outside += [Outside(what="rank", node=one.node, signal=one.halted, ranks=(one.rank,)) for one in halted]
    if outside or not facts.network.stuck:
        return outside
    return apply_rules(evidence, "cut")


# -- connected parts of a broken network


def connected_parts(nodes: Collection[str], broken: Collection[Collection[str]]) -> list[tuple[str, ...]]:
    """Return the sets of nodes that still reach each other, directly or through others, the largest first."""
    left, parts, disconnected = set(nodes), list[tuple[str, ...]](), {frozenset(pair) for pair in broken}
    while left:
        part, new = set[str](), {min(left)}
        while new:
            part |= new
            new = {node for node in left - part if any(frozenset((node, other)) not in disconnected for other in new)}
        parts.append(tuple(sorted(part)))
        left -= part
    return sorted(parts, key=lambda part: (-len(part), part))


def outside_of_most(nodes: Collection[str], broken: Collection[Collection[str]]) -> tuple[str, ...]:
    """Return the nodes outside of the largest connected part; empty if that part is no majority."""
    first, *rest = connected_parts(nodes, broken)
    return tuple(node for part in rest for node in part) if 2 * len(first) > len(nodes) else ()
