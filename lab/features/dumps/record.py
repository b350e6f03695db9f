"""Make a record from dumps, as if the lab had recorded the job; facts that dumps do not contain are not in it."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import Any

from lab.diagnosis.causes import find_causes
from lab.diagnosis.ends import culprit_by, find_waits
from lab.diagnosis.evidence import Evidence, Judgement, read_evidence
from lab.errors import RecordError
from lab.features.dumps.dump import DEFAULT_GROUP, HINT, Dump, Dumps, Entry, Limits
from lab.operations import OPERATIONS, Cut, Who, get_operation
from lab.record.events import Clock, Dumped
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import write_file
from lab.record.result import RankResult, Result
from lab.record.write import RecordWriter
from lab.trace.model import DUMPED
from lab.words import format_count, name_ranks

MAX_LISTED = 64
"""Most tensors that a trace lists per rank. Larger groups leave them out, because all are the same."""
_CALL, _GROUP, _CHARACTERS = 16, 4, 8


def cost_of_call(entry: Entry, members: int) -> int:
    """Return the cost of a call in a group with this many ranks."""
    items = sum(1 + len(tensor.shape) for tensors in (entry.inputs, entry.outputs) for tensor in tensors)
    op = get_operation(entry.op)
    is_listed = op.cut is Cut.TENSORS or (op.giver is Who.ALL and op.cut is Cut.WHOLE and not (op.reduces or op.joined))
    if is_listed and members <= MAX_LISTED:
        items *= members
    text = len(entry.op) + len(entry.group) + len(entry.location[0]) + len(entry.location[2])
    return _CALL + items + text // _CHARACTERS


def cost_of_group(ranks_of: Mapping[int, tuple[int, ...]]) -> int:
    """Return the cost of a group with its lists of members by rank; a list that ranks share counts once."""
    shared = {id(ranks): len(ranks) for ranks in ranks_of.values()}
    return _GROUP + (sum(shared.values()) if len(shared) == 1 else sum(map(len, ranks_of.values())))


Groups = dict[str, dict[int, tuple[int, ...]]]
"""By name of a group and by member: the ranks of the group."""
_COALESCED = "coalesced"
_GLOOS = ""
"""Gloo uses this name when it reports members, for every group."""
_MOST_PER_DUMP = 64
"""Most ranks of a job for each dump, if the number of ranks is unknown."""
_MOST_VARIANTS = 64
"""Most lists of members for one group name; groups of other ranks may have the same name."""


class Calls:
    """The calls of a job from its dumps; only the latest if all would be too much for a record.

    Raises:
        RecordError: Even the latest call of each rank is too much.
    """

    def __init__(self, dumps: Dumps) -> None:
        self.problems = problems = [*dumps.problems]
        """What is unknown, one sentence each."""
        by_rank = dumps.by_rank
        """In order; messages only if their other ends are known."""
        merged = {rank: _merge(dump.entries) for rank, dump in sorted(by_rank.items())}
        groups = _members(by_rank, merged, problems)
        self.by_rank = latest = _keep_latest(merged, groups, dumps.limits)
        """In order; of messages, those whose other ends are known."""
        whole = {rank for rank, dump in by_rank.items() if dump.whole and len(latest[rank]) == len(merged[rank])}
        used, cost = {entry.group for entries in latest.values() for entry in entries}, 0
        self.groups: Groups = {}
        for name, ranks_of in groups.items():  # groups with calls, and others for up to a quarter of the limit
            cost += cost_of_group(ranks_of) if name not in used else 0
            if name in used or cost <= dumps.limits.work // 4:
                self.groups[name] = ranks_of
        lists = {id(ranks): ranks for ranks_of in self.groups.values() for ranks in ranks_of.values()}
        missing = {*chain.from_iterable(lists.values())} - by_rank.keys()  # ranks without a dump
        self.descriptions = {name: of for dump in by_rank.values() for name, (_, of) in dump.groups.items() if name}
        self.descriptions |= {entry.group: entry.description for entries in latest.values() for entry in entries}
        self.messages = not any(dump.silent_of_messages for dump in by_rank.values())
        """Whether point-to-point messages are included."""
        if older := sum(dump.older + len(merged[rank]) - len(latest[rank]) for rank, dump in by_rank.items()):
            what = f"all but the latest {format_count(max(map(len, latest.values())), 'call')} of each rank"
            problems.append(f"left out: {what}, {older:,} in all; `lab import --large` keeps more")
        if len(groups) > len(self.groups):
            empty = format_count(len(groups) - len(self.groups), "group")
            problems.append(f"left out: {empty} without a recorded call")
        if not self.messages:
            problems.append("the job sent messages between two ranks, but these dumps do not contain them")
        if missing:
            problems.append(f"{name_ranks(missing)} left no dump")
        if any(entry.over and entry.ended_ns is None for entries in latest.values() for entry in entries):
            problems.append("these dumps do not say when calls ended: the lab shows the calls as if they took no time")
        _leave_out_messages(self, by_rank.keys() - whole | missing)
        _leave_out_steps(self, by_rank, whole)


def _keep_latest(calls: dict[int, list[Entry]], groups: Groups, limits: Limits) -> dict[int, list[Entry]]:
    """Return the latest calls of each rank, as many as the limit allows.

    The cost of a record consists of the calls, the members of all steps, and the groups.
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
    raise RecordError("a record cannot hold even the latest call of each rank in these dumps", HINT)


# -- coalesced calls


def _merge(entries: Iterable[Entry]) -> list[Entry]:
    """Return the calls of a rank, with coalesced calls as one call.

    Coalesced messages stay separate calls, and get the state of the whole.
    """
    merged: list[Entry] = []
    batches = groupby(entries, key=lambda one: (one.group, one.message, one.p2p_seq if one.message else one.seq))
    for _, together in batches:
        *inner, last = together
        if not inner or not last.op.endswith(_COALESCED):
            merged += [entry for entry in (*inner, last) if entry.op != _COALESCED]
            continue
        inner = [replace(entry, over=last.over, ended_ns=last.ended_ns) for entry in inner]
        if not any(entry.message for entry in inner):
            op = inner[0].op
            coalesced = op if op.endswith(_COALESCED) else f"{op}_{_COALESCED}"
            inputs = tuple(chain.from_iterable(call.inputs for call in inner))
            outputs = tuple(chain.from_iterable(call.outputs for call in inner))
            inner = [replace(inner[0], op=coalesced if coalesced in OPERATIONS else op, inputs=inputs, outputs=outputs)]
        merged += inner
    return merged


# -- groups


def _members(dumps: Mapping[int, Dump], calls: Mapping[int, list[Entry]], problems: list[str]) -> Groups:
    """Return the ranks of each group by member: as dumped, or else the ranks with calls in it."""
    reported: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = defaultdict(dict)
    groups: Groups = defaultdict(dict)
    callers: dict[str, set[int]] = defaultdict(set)
    of_all: set[str] = set()
    """Groups of all ranks."""
    for rank, dump in dumps.items():
        for name, (ranks, _) in dump.groups.items():
            ranks = reported[name].setdefault(ranks, ranks) if ranks else ranks
            if rank in ranks and name != _GLOOS:
                groups[name][rank] = ranks
        for entry in calls[rank]:
            callers[entry.group].add(rank)
            if entry.description == DEFAULT_GROUP or (entry.group == "0" and not entry.description):
                of_all.add(entry.group)
    for name, lists in reported.items():
        if len(lists) > _MOST_VARIANTS and name != _GLOOS:
            problems.append(
                f"left out: the members of the group {name!r}, of which the dumps have {len(lists):,} lists"
            )
            groups.pop(name, None)
    for name, ranks_of in callers.items():
        ranks = tuple(sorted(ranks_of))
        if len(reported[name]) == 1:
            ranks = next(iter(reported[name]))
        elif name in of_all and max(dumps) < _MOST_PER_DUMP * len(dumps):
            ranks = tuple(range(max([max(dumps) + 1, *(len(of) for of in reported[_GLOOS])])))
        for rank in ranks_of:
            groups[name].setdefault(rank, ranks)
    return {name: of for name, of in groups.items() if of}


# -- calls that are left out


def _leave_out_messages(calls: Calls, lacking: set[int]) -> None:
    """Leave out messages that cannot be matched: the other end is unknown, or a rank's calls are incomplete."""
    unnamed = ", because the dumps do not name the other rank"
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
    """Leave out collectives that may be missing in a rank's dump.

    The rank may have called them before its dump begins, or its dump has no entry for them.
    """
    held: dict[str, dict[int, set[int]]] = {name: {} for name in calls.groups}
    """By group and rank: numbers of collectives."""
    for rank, entries in calls.by_rank.items():
        for entry in entries:
            if not entry.message:
                held[entry.group].setdefault(rank, set()).add(entry.seq)
    lost: dict[str, set[int]] = defaultdict(set)
    """By group: numbers of collectives that a rank called, or may have called, before its dump begins."""
    cut: set[int] = set()
    for name, ranks_of in calls.groups.items():
        everything = sorted(set().union(*held[name].values()))
        for rank in ranks_of.keys() - whole if everything else ():
            seqs, enqueued = held[name].get(rank, set()), dumps[rank].enqueued
            known = {enqueued[name]} if name in enqueued and not (seqs and dumps[rank].unbroken) else set()
            before = everything[: bisect_right(everything, max(seqs | known, default=everything[-1]))]
            if len(before) > len(seqs):
                lost[name].update(seq for seq in before if seq not in seqs)
                cut.add(rank)
    if count := sum(map(len, lost.values())):
        for rank, entries in calls.by_rank.items():
            calls.by_rank[rank] = [one for one in entries if one.message or one.seq not in lost.get(one.group, ())]
        whose = f"dump{'s' if len(cut) > 1 else ''} of {name_ranks(cut)}"
        calls.problems.append(f"left out: {format_count(count, 'collective')} that the {whose} may have held before")


_CLOCK_ERROR_S = 86_400.0
_EXIT_CODES = {"hung": 4}


def import_dumps(dumps: Dumps, name: str, runs: Path) -> Record:
    """Make the record of a job from its dumps, in a folder of runs; the name becomes its scenario.

    Raises:
        RecordError: It cannot be written.
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
            # write each trace at once: there may be more ranks than a process may have open files
            write_file(writer.path, f"{TRACE}/{rank_trace(rank)}", lines.encode())
        record = Record(path=writer.path)
        judgement = _judge(read_evidence(record), _may_continue(dumps))
        ranks = tuple(RankResult(rank=rank, log_path=writer.log_path(rank)) for rank in calls.by_rank)
        judged = {name: getattr(judgement, name) for name in ("verdict", "reason", "culprit")}
        known = {**judged, "scenario": name, "run": writer.run, "path": writer.path, "ranks": ranks}
        writer.finish(Result(**known, duration_s=None, exit_code=_EXIT_CODES.get(judgement.verdict, 1)))
    except BaseException:
        writer.discard()
        raise
    return record


def _short_names(entries: list[Entry]) -> dict[str, str]:
    """Return script file -> its name relative to the folder that contains all scripts."""
    files = {entry.location[0] for entry in entries}
    folders = {os.path.dirname(file) for file in files if file.startswith("/")}
    root = os.path.commonpath(folders) if folders else ""
    below = f"{root.rstrip('/')}/"
    return {file: file.removeprefix(below) if root else file for file in files}


def _group_lines(calls: Calls) -> dict[int, list[dict[str, Any]]]:
    """Return by rank the trace lines about groups. If all members agree, only one of them has the line."""
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
    """Yield the lines of a trace, as in `docs/trace.md`."""
    entries = calls.by_rank[rank]
    times = [*accumulate((entry.begun_ns for entry in entries), max)]  # never decreasing, even if a clock was set back
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
    """Return the fields of a call without its times."""
    inputs, outputs, bytes_in, bytes_out = _tensors(entry, len(calls.groups[entry.group][rank]))
    file, line, function = entry.location
    return {
        "op": entry.op,
        "g": entry.group,
        **({"peer": entry.peer, "tag": 0} if entry.message else {"seq": entry.seq, "async": True}),
        "in": inputs,
        "ib": bytes_in,
        **({} if outputs is None else {"out": outputs, "ob": bytes_out}),
        **({"at": f"{files[file]}:{line}", "fn": function} if file else {}),
    }


_TensorList = list[list[Any]]


def _tensors(entry: Entry, ranks: int) -> tuple[_TensorList, _TensorList | None, int, int]:
    """Return the input and output tensors of a call, and their bytes; outputs None: the same as the inputs.

    In dumps, tensors from or for all ranks are one tensor. The splits of an all_to_all are unknown, so its tensors are
    left out.
    """
    op = get_operation(entry.op)
    bytes_in, bytes_out = (sum(tensor.bytes for tensor in of) for of in (entry.inputs, entry.outputs))
    inputs, outputs = ([[tensor.dtype, [*tensor.shape]] for tensor in of] for of in (entry.inputs, entry.outputs))
    if op.giver is Who.ALL and op.taker is Who.ALL and op.cut in (Cut.SPLITS, Cut.TENSORS) and not op.reduces:
        return [], [], bytes_in, bytes_out
    if op.cut is Cut.TENSORS:
        inputs = _list_by_rank(inputs, ranks)
    elif op.giver is Who.ALL and op.cut is Cut.WHOLE and not (op.reduces or op.joined):
        outputs = _list_by_rank(outputs, ranks)
    elif not op.receives and (op.cut is Cut.WHOLE and not op.joined):
        return inputs, None, bytes_in, bytes_in
    return inputs, outputs, bytes_in, bytes_out


def _list_by_rank(tensors: _TensorList, ranks: int) -> _TensorList:
    """Split a tensor into one per rank; empty for a large group."""
    if len(tensors) != 1:
        return tensors
    if ranks > MAX_LISTED:
        return []
    dtype, sizes = tensors[0]
    return [[dtype, sizes[1:]]] * ranks if sizes and sizes[0] == ranks else []


_USUAL_S = 10.0
_FACTOR = 2
"""A call in progress is no sign of a hang before this time, or this multiple of a rank's longest time between calls.

A dump with stacks takes seconds, in which the ranks wait for each other.
"""


def _may_continue(dumps: Dumps) -> bool:
    """Return whether no call had been in progress for unusually long when the dumps were written.

    A file with another time, such as a copy, makes calls look long.
    """
    for dump in dumps.by_rank.values():
        begun = [entry.begun_ns for entry in dump.entries]
        usual_ns = max((later - earlier for earlier, later in pairwise(begun)), default=0)
        left = [dump.written_ns - entry.begun_ns for entry in dump.entries if not entry.over]
        if left and not 0 <= max(left) <= max(_USUAL_S * 1e9, _FACTOR * usual_ns):
            return False
    return True


def _judge(evidence: Evidence, may_continue: bool) -> Judgement:
    """Return what ranks waited for when they were dumped; dumps do not show how the job ended."""
    causes = find_causes(evidence)
    if not any(call.state == "unfinished" for rank in evidence.ranks for call in evidence.calls(rank)):
        reason = "every call in the dumps is over, so they do not show what stopped the job, if anything did"
        return Judgement(verdict="error", reason=reason)
    first = next((cause for cause in causes if cause.step), None)
    waiting = name_ranks(find_waits(evidence))
    reason = f"at the time of the dumps, {waiting} had calls in progress"
    if may_continue and (first is None or not first.kind.properties & {"blameless", "by_calls"}):
        return Judgement(verdict="error", reason=f"{reason}, but not for unusually long: the job may have continued")
    if first is None:
        return Judgement(verdict="hung", reason=reason)
    culprit = culprit_by(first, evidence)
    reason = f"{reason}: {first.headline}"
    return Judgement(verdict="hung", reason=reason, culprit=culprit, findings=(first,), summary=first.headline)
