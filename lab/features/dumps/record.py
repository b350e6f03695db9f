"""Makes a record of what dumps tell, as if the lab had recorded the job; what they do not tell is not in it.

Nobody saw the job end, and no dump says on which machine its rank was: the times of a rank are those of its machine,
and clocks of different machines are taken to be a day apart.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge
from lab.features.dumps import words
from lab.features.dumps.calls import Calls, put_together
from lab.features.dumps.cost import MOST_APART
from lab.features.dumps.dump import Entry
from lab.features.dumps.folder import Dumps
from lab.operations import Cut, Who, operation
from lab.record.events import Clock, Dumped
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import write_file
from lab.record.result import RankResult, Result
from lab.record.write import RecordWriter
from lab.trace.model import DUMPED

_CLOCK_ERROR_S = 86_400.0
_EXIT_CODES = {"hung": 4}


def import_dumps(dumps: Dumps, name: str, runs: Path) -> Record:
    """The record of a job that left these dumps, in a folder of runs; its scenario has the name.

    Raises:
        RecordError: it cannot be written.
    """
    calls = put_together(dumps)
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
        judgement = judge(read_evidence(record))
        ranks = tuple(RankResult(rank=rank, log_path=writer.log_path(rank)) for rank in calls.by_rank)
        result = Result(
            verdict=judgement.verdict,
            reason=judgement.reason,
            culprit=judgement.culprit,
            ranks=ranks,
            scenario=name,
            run=writer.run,
            path=writer.path,
            duration_s=None,
            exit_code=_EXIT_CODES.get(judgement.verdict, 1),
        )
        writer.finish(result)
    except BaseException:
        writer.discard()
        raise
    return record


def _short_names(entries: list[Entry]) -> dict[str, str]:
    """By file of a script: how it is called, relative to the folder that all scripts are in."""
    files = {entry.file for entry in entries}
    folders = {os.path.dirname(file) for file in files if file.startswith("/")}
    root = os.path.commonpath(folders) if folders else ""
    below = f"{root.rstrip('/')}/"
    return {file: os.path.relpath(file, root) if root and file.startswith(below) else file for file in files}


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
    file = files[entry.file]
    return {
        "op": entry.op,
        "g": entry.group,
        **({"peer": entry.peer, "tag": 0} if entry.message else {"seq": entry.seq, "async": True}),
        "in": takes,
        "ib": bytes_in,
        **({} if gives is None else {"out": gives, "ob": bytes_out}),
        **({"at": f"{file}:{entry.line}", "fn": entry.function} if file else {}),
    }


_Told = list[list[Any]]


def _tensors(entry: Entry, ranks: int) -> tuple[_Told, _Told | None, int, int]:
    """The tensors that a call takes and gives, and their bytes; None: those that it takes.

    Tensors from or for all ranks stand in dumps as one. How an all_to_all was split does not, so they are left out.
    """
    op = operation(entry.op)
    bytes_in, bytes_out = (
        sum(tensor.count * words.width_of(tensor.dtype) for tensor in tensors)
        for tensors in (entry.inputs, entry.outputs)
    )
    takes, gives = ([[tensor.dtype, [*tensor.sizes]] for tensor in of] for of in (entry.inputs, entry.outputs))
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
