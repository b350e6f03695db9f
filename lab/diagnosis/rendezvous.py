"""Why ranks did not find each other in init_process_group, from the stores that they looked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lab.diagnosis.ends import activities_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, FindingKind, Rendezvous, Side, majority
from lab.trace.model import StoreLookup, worlds_of

_LOOPBACK = re.compile(r"localhost|127\.|::1$")
"""Addresses that each node has for itself."""


def explain_rendezvous(evidence: Evidence) -> Finding | None:
    """What kept ranks in init_process_group, or failed them there; None where that is not on record."""
    lookups = {rank: of for rank in evidence.ranks if (of := _lookup(evidence, rank)) is not None}
    stuck = [rank for rank in lookups if _is_stuck(evidence, rank)]
    if not stuck:
        return None
    asked = {rank: of for rank, of in lookups.items() if rank in stuck or of.found}
    told = _apart(asked) or _unanswered(asked, evidence) or _numbered(asked, stuck, evidence)
    return _finding(told, asked, evidence) if told is not None else None


def _finding(told: Rendezvous, asked: Mapping[int, StoreLookup], evidence: Evidence) -> Finding:
    odd = told.ranks
    others = tuple(rank for rank in asked if rank not in odd)
    places = {rank: place.at for rank in odd if (place := evidence.place(evidence.ranks[rank])) is not None}
    lines = tuple(asked[rank].source if rank in asked else places.get(rank, "") for rank in (*odd, *others))
    return Finding(kind=FindingKind.RENDEZVOUS, facts=replace(told, others=others, lines=lines))


def find_split_worlds(evidence: Evidence) -> list[Finding]:
    """Ranks that met at one store and do not agree how many they are, or who: whatever they do then hangs or fails."""
    met: dict[str, dict[int, StoreLookup]] = {}
    for rank, facts in evidence.ranks.items():
        lookup = None if facts.left else _lookup(evidence, rank)
        if lookup is not None and lookup.found and not _is_over(evidence, rank):
            own = "" if _is_runs(lookup, evidence) or not _LOOPBACK.match(lookup.host) else facts.node
            met.setdefault(f"{_address(lookup)} {own}", {})[rank] = lookup
    told = [(asked, _disagreement(asked)) for asked in met.values()]
    return [_finding(said, asked, evidence) for asked, said in told if said is not None]


def _is_over(evidence: Evidence, rank: int) -> bool:
    """Whether a rank has destroyed the default group that it made last."""
    worlds = worlds_of(evidence.trace.ranks[rank], evidence.trace.groups)
    return not worlds or worlds[-1].destroyed is not None


def _lookup(evidence: Evidence, rank: int) -> StoreLookup | None:
    """The store that a rank looked for in its last init_process_group."""
    trace = evidence.trace.ranks.get(rank)
    marks = [mark for mark in trace.marks if mark.name == "init_process_group"] if trace is not None else []
    if trace is None or not marks or not trace.stores or trace.stores[-1].begin < marks[-1].begin:
        return None
    return trace.stores[-1]


def _is_stuck(evidence: Evidence, rank: int) -> bool:
    """Whether a rank never got out of its last init_process_group, or failed there."""
    marks = [mark for mark in evidence.trace.ranks[rank].marks if mark.name == "init_process_group"]
    place = evidence.place(evidence.ranks[rank])
    raised = evidence.ranks[rank].failed and place is not None and place.call == "init_process_group"
    return marks[-1].end is None or raised


def _address(lookup: StoreLookup) -> str:
    return f"{lookup.host}:{lookup.port}"


def _apart(asked: Mapping[int, StoreLookup]) -> Rendezvous | None:
    """Ranks that looked at different addresses."""
    addresses = {rank: _address(of) for rank, of in asked.items()}
    if len(set(addresses.values())) == 1:
        return None
    _, odd = majority(addresses)
    silent = tuple(rank for rank in asked if not asked[rank].found)
    sides = _sides({rank: f"at {address}" for rank, address in addresses.items()})
    return Rendezvous(how="addresses", sides=sides, silent=silent if len(silent) < len(asked) else (), ranks=odd)


def _unanswered(asked: Mapping[int, StoreLookup], evidence: Evidence) -> Rendezvous | None:
    """No store at the one address; unless rank 0 hosts one there, and only waits for the others."""
    silent = tuple(rank for rank in asked if not asked[rank].found)
    found = tuple(rank for rank in asked if asked[rank].found)
    hosts = [rank for rank in silent if asked[rank].asked_rank == 0 and not _is_runs(asked[rank], evidence)]
    if not silent or (hosts and (found or len(silent) == 1)):
        return None
    why = next((of.error.partition("\n")[0] for of in asked.values() if of.error), "")
    return Rendezvous(how="unanswered", address=_address(asked[silent[0]]), silent=silent, met=found, error=why)


def _is_runs(lookup: StoreLookup, evidence: Evidence) -> bool:
    """Whether the lab itself has a store at that address."""
    plan = evidence.record.plan()
    return (lookup.host, lookup.port) == (plan.master_addr, plan.master_port)


def _numbered(asked: Mapping[int, StoreLookup], stuck: Sequence[int], evidence: Evidence) -> Rendezvous | None:
    """The store is there: ranks that expect more of them than came, or that say they are the same one."""
    if not any(of.found for of in asked.values()):
        return None  # rank 0 alone, and whether it hosts a store there is not known
    disagreement = _disagreement(asked)
    if disagreement is not None:
        return disagreement
    first = next(iter(asked.values()))
    world, came = first.world_size, {rank: of.asked_rank for rank, of in asked.items()}
    beyond = {rank: str(number) for rank, number in came.items() if number >= world}
    missing = sorted(set(range(world)) - set(came.values()))
    absent = tuple(rank for rank in evidence.ranks if rank not in asked)
    told = Rendezvous(
        how="beyond" if beyond else "missing" if missing else "unconnected",
        address=_address(first),
        sides=tuple(Side(ranks=(rank,), what=number) for rank, number in beyond.items()),
        world_size=world,
        run_size=len(evidence.ranks),
        met=tuple(came),
        stuck=tuple(stuck),
        ranks=tuple(beyond),
    )
    if beyond or not missing:
        return told
    more = world > len(evidence.ranks)
    did = () if more else activities_of(evidence, absent, {})
    return replace(told, missing=len(missing), absent=did, ranks=() if more else absent)


def _disagreement(asked: Mapping[int, StoreLookup]) -> Rendezvous | None:
    """Ranks that expect different numbers of them, or say that they are the same one."""
    address = _address(next(iter(asked.values())))
    worlds = {rank: of.world_size for rank, of in asked.items()}
    if len(set(worlds.values())) > 1:
        _, odd = majority(worlds)
        sides = _sides({rank: str(size) for rank, size in worlds.items()})
        return Rendezvous(how="sizes", address=address, sides=sides, ranks=odd)
    same = [one for one in _sides({rank: str(of.asked_rank) for rank, of in asked.items()}) if len(one.ranks) > 1]
    return Rendezvous(how="same_rank", address=address, sides=tuple(same)) if same else None


def _sides(by_rank: Mapping[int, str]) -> tuple[Side, ...]:
    """What ranks looked for, or said, and who did."""
    found: dict[str, list[int]] = {}
    for rank, what in by_rank.items():
        found.setdefault(what, []).append(rank)
    return tuple(Side(ranks=tuple(ranks), what=what) for what, ranks in found.items())
