"""Makes a record of what dumps tell, as if the lab had recorded the job; what they do not tell is not in it."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from lab.diagnosis.causes import find_causes
from lab.diagnosis.ends import culprit_by, find_waits
from lab.diagnosis.evidence import Evidence, Judgement, read_evidence
from lab.errors import RecordError
from lab.features.dumps import dump as words
from lab.features.dumps.dump import HINT, Dump, Dumps, Entry, Limits
from lab.operations import OPERATIONS, Cut, Who, get_operation
from lab.record.events import Clock, Dumped
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import write_file
from lab.record.result import RankResult, Result
from lab.record.write import RecordWriter
from lab.trace.model import DUMPED
from lab.words import format_count, name_ranks

MOST_APART = 64
"""The most tensors that a trace lists for each rank. A larger group leaves them out, because all are alike."""
_CALL, _GROUP, _CHARACTERS = 16, 4, 8


def cost_of_call(entry: Entry, members: int) -> int:
    """The cost of a call in a group of so many ranks."""
    items = sum(1 + len(tensor.shape) for tensors in (entry.inputs, entry.outputs) for tensor in tensors)
    op = get_operation(entry.op)
    apart = op.cut is Cut.TENSORS or (op.giver is Who.ALL and op.cut is Cut.WHOLE and not (op.reduces or op.joined))
    if apart and members <= MOST_APART:
        items *= members
    text = len(entry.op) + len(entry.group) + len(entry.place[0]) + len(entry.place[2])
    return _CALL + items + text // _CHARACTERS


def cost_of_group(ranks_of: Mapping[int, tuple[int, ...]]) -> int:
    """Compute the cost of a group with its lists of members by rank; a list that ranks share counts once."""
    shared = {id(ranks): len(ranks) for ranks in ranks_of.values()}
    return _GROUP + (sum(shared.values()) if len(shared) == 1 else sum(map(len, ranks_of.values())))


Groups = dict[str, dict[int, tuple[int, ...]]]
"""By name of a group and by rank that is in it: its ranks."""
_COALESCED = "coalesced"
_GLOOS = ""
"""What gloo calls a group when it tells its members, whatever its name is."""
_MOST_PER_DUMP = 64
"""Ranks that a job has for each that left a dump, where it is not told how many there are."""
_MOST_VARIANTS = 64
"""Lists of members of one group that the dumps may tell; groups of other ranks may have the same name."""


class Calls:
    """The calls of a job, as far as its dumps tell them, or the latest of them where that is too much for a record.

    Raises:
        RecordError: the latest call of each rank is too much already.
    """

    def __init__(self, dumps: Dumps) -> None:
        self.problems = problems = [*dumps.problems]
        """What is not known, a sentence each."""
        by_rank = dumps.by_rank
        merged = {rank: _merge(dump.entries) for rank, dump in sorted(by_rank.items())}
        told = _members(by_rank, merged, problems)
        self.by_rank = latest = _keep_latest(merged, told, dumps.limits)
        """In order; of messages, those whose other ends are known."""
        whole = {rank for rank, dump in by_rank.items() if dump.whole and len(latest[rank]) == len(merged[rank])}
        used, cost = {entry.group for entries in latest.values() for entry in entries}, 0
        self.groups: Groups = {}
        for name, ranks_of in told.items():  # those of calls, and of the others as many as cost a quarter of the limit
            cost += cost_of_group(ranks_of) if name not in used else 0
            if name in used or cost <= dumps.limits.work // 4:
                self.groups[name] = ranks_of
        lists = {id(ranks): ranks for ranks_of in self.groups.values() for ranks in ranks_of.values()}
        missing = {*chain.from_iterable(lists.values())} - by_rank.keys()  # ranks that left no dump
        self.descriptions = {name: of for dump in by_rank.values() for name, (_, of) in dump.groups.items() if name}
        self.descriptions |= {entry.group: entry.description for entries in latest.values() for entry in entries}
        self.messages = not any(dump.silent_of_messages for dump in by_rank.values())
        """Whether point-to-point messages are listed."""
        if older := sum(dump.older + len(merged[rank]) - len(latest[rank]) for rank, dump in by_rank.items()):
            what = f"all but the latest {format_count(max(map(len, latest.values())), 'call')} of each rank"
            problems.append(f"left out: {what}, {older:,} in all; `lab import --large` keeps more")
        if len(told) > len(self.groups):
            problems.append(
                f"left out: {format_count(len(told) - len(self.groups), 'group')} in which no call is on record"
            )
        if not self.messages:
            problems.append("the job sent messages between two ranks, and these dumps do not tell of them")
        if missing:
            problems.append(f"{name_ranks(missing)} left no dump")
        if any(entry.over and entry.ended_ns is None for entries in latest.values() for entry in entries):
            problems.append("when calls ended is not in these dumps: they are shown as if they had taken no time")
        _leave_out_messages(self, by_rank.keys() - whole | missing)
        _leave_out_steps(self, by_rank, whole)


def _keep_latest(calls: dict[int, list[Entry]], groups: Groups, limits: Limits) -> dict[int, list[Entry]]:
    """The latest calls of each rank, as many as the limit allows.

    A record of these calls costs: the calls, the members of every step, and the groups.
    """
    most = longest = max(map(len, calls.values()))
    while most:
        latest = {rank: entries[-most:] for rank, entries in calls.items()}
        entries = [(entry, len(groups[entry.group][rank])) for rank, ours in latest.items() for entry in ours]
        steps = {(entry.group, entry.seq): members for entry, members in entries if not entry.message}
        cost = sum(cost_of_call(entry, members) for entry, members in entries) + sum(steps.values())
        cost += sum(cost_of_group(groups[name]) for name in {entry.group for entry, _ in entries})
        if cost <= limits.work:
            return latest
        most = min(most * 9 // 10, most * limits.work // cost)
    if not longest:
        return calls
    raise RecordError("the latest call of each rank in these dumps is more than a record may hold", HINT)


# -- calls that were put together


def _merge(entries: Iterable[Entry]) -> list[Entry]:
    """The calls of a rank; those that were coalesced are one call, but messages, which have the state of the whole."""
    found: list[Entry] = []
    batches = groupby(entries, key=lambda one: (one.group, one.message, one.p2p_seq if one.message else one.seq))
    for _, together in batches:
        *inner, last = together
        if not inner or not last.op.endswith(_COALESCED):
            found += [entry for entry in (*inner, last) if entry.op != _COALESCED]
            continue
        inner = [replace(entry, over=last.over, ended_ns=last.ended_ns) for entry in inner]
        if not any(entry.message for entry in inner):
            op = inner[0].op
            several = op if op.endswith(_COALESCED) else f"{op}_{_COALESCED}"
            takes, gives = (tuple(chain.from_iterable(map(attrgetter(side), inner))) for side in ("inputs", "outputs"))
            inner = [replace(inner[0], op=several if several in OPERATIONS else op, inputs=takes, outputs=gives)]
        found += inner
    return found


# -- groups


def _members(dumps: Mapping[int, Dump], calls: Mapping[int, list[Entry]], problems: list[str]) -> Groups:
    """The ranks of each group, for each rank that is in it: as told, or else those that called something in it."""
    told: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = defaultdict(dict)
    groups: Groups = defaultdict(dict)
    callers: dict[str, set[int]] = defaultdict(set)
    of_all: set[str] = set()
    """Groups of all ranks."""
    for rank, dump in dumps.items():
        for name, (ranks, _) in dump.groups.items():
            ranks = told[name].setdefault(ranks, ranks) if ranks else ranks
            if rank in ranks and name != _GLOOS:
                groups[name][rank] = ranks
        for entry in calls[rank]:
            callers[entry.group].add(rank)
            if entry.description == words.DEFAULT_GROUP or (entry.group == "0" and not entry.description):
                of_all.add(entry.group)
    for name, lists in told.items():
        if len(lists) > _MOST_VARIANTS and name != _GLOOS:
            problems.append(f"left out: who is in the group {name!r}, of which the dumps tell {len(lists):,} lists")
            groups.pop(name, None)
    for name, ranks_of in callers.items():
        ranks = tuple(sorted(ranks_of))
        if len(told[name]) == 1:
            ranks = next(iter(told[name]))
        elif name in of_all and max(dumps) < _MOST_PER_DUMP * len(dumps):
            ranks = tuple(range(max([max(dumps) + 1, *(len(of) for of in told[_GLOOS])])))
        for rank in ranks_of:
            groups[name].setdefault(rank, ranks)
    return {name: of for name, of in groups.items() if of}


# -- what cannot be told


def _leave_out_messages(calls: Calls, lacking: set[int]) -> None:
    """Messages whose other end is not told, and those with a rank whose calls are lacking: no one can pair them."""
    unnamed = ", as the dumps do not say who is at the other end"
    unpaired = " with ranks whose dumps do not go back to the first call"
    counts = {unnamed: 0, unpaired: 0}
    for rank, entries in calls.by_rank.items():
        kept = []
        for entry in entries:
            ranks = calls.groups.get(entry.group, {}).get(rank, ())
            if entry.message and (entry.peer is None or entry.peer >= len(ranks)):
                counts[unnamed] += 1
            elif entry.message and {rank, ranks[entry.peer or 0]} & lacking:
                counts[unpaired] += 1
            else:
                kept.append(entry)
        calls.by_rank[rank] = kept
    calls.messages &= not any(counts.values())
    for why, count in counts.items():
        if count:
            calls.problems.append(f"left out: {format_count(count, 'send or receive', 'sends and receives')}{why}")


def _leave_out_steps(calls: Calls, dumps: Mapping[int, Dump], whole: set[int]) -> None:
    """Collectives that a rank may have called before its dump begins, or has called and its dump does not hold."""
    held: dict[str, dict[int, set[int]]] = {name: {} for name in calls.groups}
    """By group and rank: numbers of collectives."""
    for rank, entries in calls.by_rank.items():
        for entry in entries:
            if not entry.message:
                held[entry.group].setdefault(rank, set()).add(entry.seq)
    lost: dict[str, set[int]] = defaultdict(set)
    """By group: numbers of collectives that a rank in it called before its dump begins, or may have."""
    cut: set[int] = set()
    for name, ranks_of in calls.groups.items():
        everything = sorted(set().union(*held[name].values()))
        for rank in ranks_of.keys() - whole if everything else ():
            seqs, enqueued = held[name].get(rank, set()), dumps[rank].enqueued
            told = {enqueued[name]} if name in enqueued and not (seqs and dumps[rank].unbroken) else set()
            before = everything[: bisect_right(everything, max(seqs | told, default=everything[-1]))]
            if len(before) > len(seqs):
                lost[name].update(seq for seq in before if seq not in seqs)
                cut.add(rank)
    count = sum(map(len, lost.values()))
    if count:
        for rank, entries in calls.by_rank.items():
            calls.by_rank[rank] = [one for one in entries if one.message or one.seq not in lost.get(one.group, ())]
        whose = f"dump{'s' if len(cut) > 1 else ''} of {name_ranks(cut)}"
        calls.problems.append(f"left out: {format_count(count, 'collective')} that the {whose} may have held before")


_CLOCK_ERROR_S = 86_400.0
_EXIT_CODES = {"hung": 4}


def import_dumps(dumps: Dumps, name: str, runs: Path) -> Record:
    """The record of a job that left these dumps, in a folder of runs; its scenario has the name.

    Raises:
        RecordError: it cannot be written.
    """
    calls = Calls(dumps)
    writer = RecordWriter(runs, name)
    try:
        workers = [{"rank": rank, "node": "", "local_rank": 0} for rank in calls.by_rank]
        writer.describe_foreign({"run": writer.run, "scenario": name, "workers": workers})
        entries = [entry for ours in calls.by_rank.values() for entry in ours]
        last = max((entry.ended_ns or entry.begun_ns for entry in entries), default=0) / 1e9
        writer.event(Clock(time=last, node="", error_s=_CLOCK_ERROR_S))
        writer.event(Dumped(time=last or time.time(), lacks=tuple(calls.problems), messages=calls.messages))
        files, groups = _short_names(entries), _group_lines(calls)
        write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
        for rank in calls.by_rank:
            lines = "".join(f"{write(line)}\n" for line in _trace(rank, calls, groups.get(rank, []), files))
            # a trace is whole at once: no file stays open, as there may be more ranks than a process may have files
            write_file(writer.path, f"{TRACE}/{rank_trace(rank)}", lines.encode())
        record = Record(path=writer.path)
        judgement = _judge(read_evidence(record))
        ranks = tuple(RankResult(rank=rank, log_path=writer.log_path(rank)) for rank in calls.by_rank)
        judged = {name: getattr(judgement, name) for name in ("verdict", "reason", "culprit")}
        known = {**judged, "scenario": name, "run": writer.run, "path": writer.path, "ranks": ranks}
        result = Result(**known, duration_s=None, exit_code=_EXIT_CODES.get(judgement.verdict, 1))
        writer.finish(result)
    except BaseException:
        writer.discard()
        raise
    return record


def _short_names(entries: list[Entry]) -> dict[str, str]:
    """By file of a script: how it is called, relative to the folder that all scripts are in."""
    files = {entry.place[0] for entry in entries}
    folders = {os.path.dirname(file) for file in files if file.startswith("/")}
    root = os.path.commonpath(folders) if folders else ""
    below = f"{root.rstrip('/')}/"
    return {file: file.removeprefix(below) if root else file for file in files}


def _group_lines(calls: Calls) -> dict[int, list[dict[str, Any]]]:
    """By rank: the lines of its trace that tell of groups. Where all members tell the same, one of them does."""
    lines: dict[int, list[dict[str, Any]]] = defaultdict(list)
    backends: dict[tuple[int, str], str] = {}
    for rank, entries in calls.by_rank.items():
        backends.update(((rank, entry.group), entry.backend) for entry in entries)
    for name, ranks_of in calls.groups.items():
        alike = len({*map(id, ranks_of.values())}) == 1
        for rank in [min(ranks_of)] if alike else sorted(ranks_of):
            described = {"desc": calls.descriptions.get(name, ""), "backend": backends.get((rank, name), "")}
            lines[rank].append({"g": name, "ranks": [*ranks_of[rank]], **described})
    return lines


def _trace(rank: int, calls: Calls, groups: list[dict[str, Any]], files: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The lines of a trace, as `docs/trace.md` has them."""
    entries = calls.by_rank[rank]
    times = [*accumulate((entry.begun_ns for entry in entries), max)]  # a clock that was put back changes no order
    start = times[0] if times else 0
    yield {"k": "start", "t": start, "format": 1, "rank": rank, "wall": start, "recorder": DUMPED}
    for line in groups:
        yield {"k": "group", "t": start, **line}
    lines = []
    for index, (begun, entry) in enumerate(zip(times, entries, strict=True), start=1):
        lines.append({"k": "begin", "t": begun, "i": index, **_call(entry, rank, calls, files)})
        if entry.over:
            lines.append({"k": "end", "t": max(begun, entry.ended_ns or 0), "i": index})
    yield from sorted(lines, key=lambda line: line["t"])


def _call(entry: Entry, rank: int, calls: Calls, files: Mapping[str, str]) -> dict[str, Any]:
    """What is told of a call, without its times."""
    ranks = calls.groups[entry.group][rank]
    takes, gives, bytes_in, bytes_out = _tensors(entry, len(ranks))
    file, line, function = entry.place
    return {
        "op": entry.op,
        "g": entry.group,
        **({"peer": entry.peer, "tag": 0} if entry.message else {"seq": entry.seq, "async": True}),
        "in": takes,
        "ib": bytes_in,
        **({} if gives is None else {"out": gives, "ob": bytes_out}),
        **({"at": f"{files[file]}:{line}", "fn": function} if file else {}),
    }


_Told = list[list[Any]]


def _tensors(entry: Entry, ranks: int) -> tuple[_Told, _Told | None, int, int]:
    """The tensors that a call takes and gives, and their bytes; None: those that it takes.

    Tensors from or for all ranks stand in dumps as one. How an all_to_all was split does not, so they are left out.
    """
    op = get_operation(entry.op)
    bytes_in, bytes_out = (sum(tensor.bytes for tensor in of) for of in (entry.inputs, entry.outputs))
    takes, gives = ([[tensor.dtype, [*tensor.shape]] for tensor in of] for of in (entry.inputs, entry.outputs))
    if op.giver is Who.ALL and op.taker is Who.ALL and op.cut in (Cut.SPLITS, Cut.TENSORS) and not op.reduces:
        return [], [], bytes_in, bytes_out
    if op.cut is Cut.TENSORS:
        takes = _apart(takes, ranks)
    elif op.giver is Who.ALL and op.cut is Cut.WHOLE and not (op.reduces or op.joined):
        gives = _apart(gives, ranks)
    elif not op.receives and (op.cut is Cut.WHOLE and not op.joined):
        return takes, None, bytes_in, bytes_in
    return takes, gives, bytes_in, bytes_out


def _apart(tensors: _Told, ranks: int) -> _Told:
    """A tensor for each rank, where they stand as one; none in a large group."""
    if len(tensors) != 1:
        return tensors
    if ranks > MOST_APART:
        return []
    dtype, sizes = tensors[0]
    return [[dtype, sizes[1:]]] * ranks if sizes and sizes[0] == ranks else []


def _judge(evidence: Evidence) -> Judgement:
    """Say what ranks waited for when they were dumped, in a job that nobody saw; how it ended is in no dump."""
    causes = find_causes(evidence)
    if not any(call.state == "unfinished" for rank in evidence.ranks for call in evidence.calls(rank)):
        reason = "every call in the dumps is over: they do not tell what kept the job from going on, if anything did"
        return Judgement(verdict="error", reason=reason)
    first = next((cause for cause in causes if cause.step), None)
    waiting = name_ranks(find_waits(evidence))
    if first is None:
        return Judgement(verdict="hung", reason=f"{waiting} had calls under way when dumped")
    culprit = culprit_by(first, evidence)
    reason = f"when dumped, {waiting} had calls under way: {first.headline}"
    return Judgement(verdict="hung", reason=reason, culprit=culprit, findings=(first,), summary=first.headline)
