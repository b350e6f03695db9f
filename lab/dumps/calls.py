"""What several dumps say together: the groups, the calls that all of them reach back to, and what is not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from lab.dumps import words
from lab.dumps.dump import Dump, Entry
from lab.dumps.folder import Dumps
from lab.operations import OPERATIONS
from lab.words import name_ranks, plural

_COALESCED = "coalesced"
_GLOOS = ""
"""What gloo calls a group when it tells its members, whatever its name is."""
_MOST_PER_DUMP = 64
"""Ranks that a job has for each that left a dump, where it is not told how many there are."""


@dataclass
class Calls:
    """The calls of a job, as far as its dumps tell them."""

    by_rank: dict[int, list[Entry]]
    """In order; of messages, those whose other ends are known."""
    groups: dict[str, dict[int, tuple[int, ...]]]
    """By name of a group and by rank that is in it: its ranks."""
    descriptions: dict[str, str]
    messages: bool
    """Whether messages are told."""
    missing: tuple[int, ...]
    """Ranks that left no dump."""
    problems: list[str] = field(default_factory=list)
    """What is not known, a sentence each."""


def put_together(dumps: Dumps) -> Calls:
    """Everything that the dumps tell of a job."""
    found = dumps.by_rank
    merged = {rank: _merge(dump.entries) for rank, dump in sorted(found.items())}
    groups = _members(found, merged)
    everybody = {rank for of in groups.values() for ranks in of.values() for rank in ranks}
    descriptions = {
        **{name: text for dump in found.values() for name, text in dump.descriptions.items() if name},
        **{entry.group: entry.description for entries in merged.values() for entry in entries},
    }
    missing = tuple(sorted(everybody - found.keys()))
    calls = Calls(merged, groups, descriptions, True, missing, [*dumps.problems])
    if any(dump.silent_of_messages for dump in found.values()):
        calls.messages = False
        calls.problems.append("the job sent messages between two ranks, and these dumps do not tell of them")
    if missing:
        calls.problems.append(f"{name_ranks(missing)} left no dump")
    if any(entry.over and entry.ended_ns is None for entries in merged.values() for entry in entries):
        calls.problems.append("when calls ended is not in these dumps: they are shown as if they had taken no time")
    _leave_out_messages(calls, found)
    _leave_out_steps(calls, found)
    return calls


# -- calls that were put together


def _merge(entries: Iterable[Entry]) -> list[Entry]:
    """The calls of a rank; those that were coalesced are one call, but messages, which have the state of the whole."""
    found: list[Entry] = []
    for _, together in groupby(entries, key=_batch):
        ours = [*together]
        last = ours[-1]
        if len(ours) == 1 or not last.op.endswith(_COALESCED):
            found += [entry for entry in ours if entry.op != _COALESCED]
            continue
        inner = ours[:-1]
        if any(entry.message for entry in inner):
            found += [replace(entry, over=last.over, ended_ns=last.ended_ns) for entry in inner]
        else:
            found.append(_joined(inner, last))
    return found


def _batch(entry: Entry) -> tuple[str, bool, int]:
    return entry.group, entry.message, entry.p2p_seq if entry.message else entry.seq


def _joined(inner: list[Entry], last: Entry) -> Entry:
    op = inner[0].op
    several = op if op.endswith(_COALESCED) else f"{op}_{_COALESCED}"
    return replace(
        inner[0],
        op=several if several in OPERATIONS else op,
        inputs=tuple(tensor for entry in inner for tensor in entry.inputs),
        outputs=tuple(tensor for entry in inner for tensor in entry.outputs),
        over=last.over,
        ended_ns=last.ended_ns,
    )


# -- groups


def _members(dumps: Mapping[int, Dump], calls: Mapping[int, list[Entry]]) -> dict[str, dict[int, tuple[int, ...]]]:
    """The ranks of each group, for each rank that is in it: as told, or else those that called something in it."""
    told: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    groups: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    callers: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for name, ranks in dump.members.items():
            told[name].add(ranks)
            if rank in ranks and name != _GLOOS:
                groups[name][rank] = ranks
        for entry in calls[rank]:
            callers[entry.group].add(rank)
    default = {
        entry.group
        for entries in calls.values()
        for entry in entries
        if entry.description == words.DEFAULT or (entry.group == "0" and not entry.description)
    }
    for name, ranks_of in callers.items():
        ranks = tuple(sorted(ranks_of))
        if len(told[name]) == 1:
            ranks = next(iter(told[name]))
        elif name in default and max(dumps) < _MOST_PER_DUMP * len(dumps):
            ranks = tuple(range(max([max(dumps) + 1, *_sizes(name, calls), *(len(of) for of in told[_GLOOS])])))
        for rank in ranks_of:
            groups[name].setdefault(rank, ranks)
    return {name: of for name, of in groups.items() if of}


def _sizes(group: str, calls: Mapping[int, list[Entry]]) -> Iterator[int]:
    """How many ranks a group has, where what was gathered from them tells."""
    for entries in calls.values():
        for entry in entries:
            if entry.group == group and entry.op == "all_gather" and len(entry.inputs) == len(entry.outputs) == 1:
                mine, all_ = entry.inputs[0].sizes, entry.outputs[0].sizes
                if all_[1:] == mine and all_:
                    yield all_[0]


# -- what cannot be told


def _leave_out_messages(calls: Calls, dumps: Mapping[int, Dump]) -> None:
    """Messages whose other end is not told, and those with a rank whose dump lacks calls: no one can pair them."""
    lacking = {rank for rank, dump in dumps.items() if not dump.whole} | {*calls.missing}
    unnamed = unpaired = 0
    for rank, entries in calls.by_rank.items():
        kept = []
        for entry in entries:
            if entry.message:
                ranks = calls.groups.get(entry.group, {}).get(rank, ())
                if entry.peer is None or entry.peer >= len(ranks):
                    unnamed += 1
                    continue
                if {rank, ranks[entry.peer]} & lacking:
                    unpaired += 1
                    continue
            kept.append(entry)
        calls.by_rank[rank] = kept
    calls.messages &= not (unnamed or unpaired)
    if unnamed:
        them = plural(unnamed, "send or receive", "sends and receives")
        calls.problems.append(f"left out: {them}, as the dumps do not say who is at the other end")
    if unpaired:
        them = plural(unpaired, "send or receive", "sends and receives")
        calls.problems.append(f"left out: {them} with ranks whose dumps do not go back to the first call")


def _leave_out_steps(calls: Calls, dumps: Mapping[int, Dump]) -> None:
    """Collectives that a rank may have called before its dump begins, or has called and its dump does not hold."""
    lost: dict[str, set[int]] = defaultdict(set)
    """By group: numbers of collectives that a rank in it called before its dump begins, or may have."""
    cut: set[int] = set()
    for name, ranks_of in calls.groups.items():
        held = {
            rank: {entry.seq for entry in calls.by_rank.get(rank, ()) if entry.group == name and not entry.message}
            for rank in ranks_of
        }
        everything = {seq for seqs in held.values() for seq in seqs}
        for rank, seqs in held.items():
            if dumps[rank].whole:
                continue
            told = None if seqs and dumps[rank].unbroken else dumps[rank].enqueued.get(name)
            reached = max([*seqs, *([] if told is None else [told])], default=None)
            gone = {seq for seq in everything - seqs if reached is None or seq <= reached}
            lost[name] |= gone
            cut |= {rank} if gone else set()
    count = sum(map(len, lost.values()))
    if count:
        for rank, entries in calls.by_rank.items():
            calls.by_rank[rank] = [one for one in entries if one.message or one.seq not in lost.get(one.group, ())]
        whose = f"dump{'s' if len(cut) > 1 else ''} of {name_ranks(cut)}"
        calls.problems.append(f"left out: {plural(count, 'collective')} that the {whose} may have held before")
