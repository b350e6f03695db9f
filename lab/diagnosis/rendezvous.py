"""Why ranks did not find each other in init_process_group, from the stores that they looked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lab.diagnosis.ends import together, what_it_did
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, majority
from lab.trace.groups import worlds_of
from lab.trace.lookup import StoreLookup
from lab.words import listing, name_ranks, plural

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
    return _finding(*told, asked, evidence) if told is not None else None


def _finding(sentence: str, odd: tuple[int, ...], asked: Mapping[int, StoreLookup], evidence: Evidence) -> Finding:
    others = tuple(rank for rank in asked if rank not in odd)
    places = {rank: place.at for rank in odd if (place := evidence.place(evidence.ranks[rank])) is not None}
    lines = tuple(asked[rank].source if rank in asked else places.get(rank, "") for rank in (*odd, *others))
    return Finding(kind="rendezvous", sentence=sentence, ranks=odd, others=others, lines=lines)


def find_split_worlds(evidence: Evidence) -> list[Finding]:
    """Ranks that met at one store and do not agree how many they are, or who: whatever they do then hangs or fails."""
    met: dict[str, dict[int, StoreLookup]] = {}
    for rank, facts in evidence.ranks.items():
        lookup = None if facts.left else _lookup(evidence, rank)
        if lookup is not None and lookup.found and not _is_over(evidence, rank):
            own = "" if _is_runs(lookup, evidence) or not _LOOPBACK.match(lookup.host) else facts.node
            met.setdefault(f"{_address(lookup)} {own}", {})[rank] = lookup
    told = [(asked, _disagreement(asked)) for asked in met.values()]
    return [_finding(*said, asked, evidence) for asked, said in told if said is not None]


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


def _apart(asked: Mapping[int, StoreLookup]) -> tuple[str, tuple[int, ...]] | None:
    """Ranks that looked at different addresses."""
    addresses = {rank: _address(of) for rank, of in asked.items()}
    if len(set(addresses.values())) == 1:
        return None
    _, odd = majority(addresses)
    said = listing(together(asked, lambda rank: f"at {addresses[rank]}"))
    silent = [rank for rank in asked if not asked[rank].found]
    answer = f" None answered {name_ranks(silent)}." if 0 < len(silent) < len(asked) else ""
    return f"Ranks looked for the store of the rendezvous at different addresses: {said}.{answer}", odd


def _unanswered(asked: Mapping[int, StoreLookup], evidence: Evidence) -> tuple[str, tuple[int, ...]] | None:
    """No store at the one address; unless rank 0 hosts one there, and only waits for the others."""
    silent = [rank for rank in asked if not asked[rank].found]
    found = [rank for rank in asked if asked[rank].found]
    hosts = [rank for rank in silent if asked[rank].asked_rank == 0 and not _is_runs(asked[rank], evidence)]
    if not silent or (hosts and (found or len(silent) == 1)):
        return None
    where = _address(asked[silent[0]])
    than = f", where {name_ranks(found)} found one" if found else ""
    why = next((of.error.partition("\n")[0] for of in asked.values() if of.error), "")
    return f"No store answered {name_ranks(silent)} at {where}{than}{f' ({why})' if why else ''}.", ()


def _is_runs(lookup: StoreLookup, evidence: Evidence) -> bool:
    """Whether the lab itself has a store at that address."""
    plan = evidence.record.plan()
    return (lookup.host, lookup.port) == (plan.master_addr, plan.master_port)


def _numbered(
    asked: Mapping[int, StoreLookup], stuck: Sequence[int], evidence: Evidence
) -> tuple[str, tuple[int, ...]] | None:
    """The store is there: ranks that expect more of them than came, or that say they are the same one."""
    if not any(of.found for of in asked.values()):
        return None  # rank 0 alone, and whether it hosts a store there is not known
    disagreement = _disagreement(asked)
    if disagreement is not None:
        return disagreement
    where, first = _is_there(asked), next(iter(asked.values()))
    world, came = first.world_size, {rank: of.asked_rank for rank, of in asked.items()}
    beyond = tuple(rank for rank, number in came.items() if number >= world)
    if beyond:
        said = listing(f"rank {rank} said to be rank {came[rank]}" for rank in beyond)
        return f"{where}, but {said} of a world of {world}: there are ranks 0 to {world - 1}.", beyond
    missing = sorted(set(range(world)) - set(came.values()))
    absent = [rank for rank in evidence.ranks if rank not in asked]
    if not missing:
        met = "each other" if len(stuck) == len(asked) else "the others"
        return (
            f"{where} and all {plural(world, 'rank')} came to it; {name_ranks(stuck)} did not get connected to {met}.",
            (),
        )
    more = world > len(evidence.ranks)
    why = f"this run has {plural(len(evidence.ranks), 'rank')}"
    if not more:
        why = f"{name_ranks(absent)} did not come to it ({_did(absent, evidence)})"
    sentence = f"{where}, but {'peers are' if len(missing) > 1 else 'a peer is'} missing: {name_ranks(came)} expected "
    return f"{sentence}{plural(world, 'rank')}, and {why}.", () if more else tuple(absent)


def _is_there(asked: Mapping[int, StoreLookup]) -> str:
    return f"The store at {_address(next(iter(asked.values())))} is there"


def _disagreement(asked: Mapping[int, StoreLookup]) -> tuple[str, tuple[int, ...]] | None:
    """Ranks that expect different numbers of them, or say that they are the same one."""
    worlds = {rank: of.world_size for rank, of in asked.items()}
    if len(set(worlds.values())) > 1:
        _, odd = majority(worlds)
        said = listing(together(asked, lambda rank: f"expected {plural(worlds[rank], 'rank')}"))
        return f"{_is_there(asked)}, but ranks do not agree how many they are: {said}.", odd
    came = {rank: of.asked_rank for rank, of in asked.items()}
    double = {number: ours for number in came.values() if len(ours := _who_said(number, came)) > 1}
    if not double:
        return None
    said = listing(f"{name_ranks(ours)} all said to be rank {number}" for number, ours in double.items())
    return f"{_is_there(asked)}, but {said}.", ()


def _did(ranks: Sequence[int], evidence: Evidence) -> str:
    return listing(together(ranks, lambda rank: what_it_did(evidence, rank, {})))


def _who_said(number: int, came: Mapping[int, int]) -> Sequence[int]:
    return [rank for rank, other in came.items() if other == number]
