"""Makes a record of what dumps tell, as if the lab had recorded the job; what they do not tell is not in it.

Nobody saw the job end, and no dump says on which machine its rank was: the times of a rank are those of its machine,
and clocks of different machines are taken to be a day apart.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from lab.dumps import words
from lab.dumps.calls import Calls, put_together
from lab.dumps.dump import Entry
from lab.dumps.folder import Dumps
from lab.operations import Cut, Who, operation
from lab.record.events import Clock, Dumped
from lab.record.read import Record
from lab.record.result import RankResult, Result
from lab.record.write import RecordWriter
from lab.trace.model import DUMPED
from lab.verdict.evidence import read_evidence
from lab.verdict.judge import judge

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
        root = _root(entries)
        for rank in calls.by_rank:
            lines = (json.dumps(line, separators=(",", ":")) + "\n" for line in _trace(rank, calls, root))
            writer.trace(rank, "".join(lines).encode("utf-8", "surrogatepass"))
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


def _root(entries: list[Entry]) -> str:
    """The folder that all scripts are in; empty where there is none."""
    folders = {os.path.dirname(entry.file) for entry in entries if entry.file.startswith("/")}
    return os.path.commonpath(folders) if folders else ""


def _trace(rank: int, calls: Calls, root: str) -> Iterator[dict[str, Any]]:
    """The lines of a trace, as `docs/trace.md` has them."""
    entries = calls.by_rank[rank]
    times = [*accumulate((entry.begun_ns for entry in entries), max)]  # a clock that was put back changes no order
    start = times[0] if times else 0
    yield {"k": "start", "t": start, "format": 1, "rank": rank, "wall": start, "recorder": DUMPED}
    backends = {entry.group: entry.backend for entry in entries}
    for name, ranks_of in calls.groups.items():
        if rank in ranks_of:
            described = {"desc": calls.descriptions.get(name, ""), "backend": backends.get(name, "")}
            yield {"k": "group", "t": start, "g": name, "ranks": [*ranks_of[rank]], **described}
    lines = []
    for index, (begun, entry) in enumerate(zip(times, entries, strict=True), start=1):
        lines.append({"k": "begin", "t": begun, "i": index, **_call(entry, rank, calls, root)})
        if entry.over:
            lines.append({"k": "end", "t": max(begun, entry.ended_ns or 0), "i": index})
    yield from sorted(lines, key=lambda line: line["t"])


def _call(entry: Entry, rank: int, calls: Calls, root: str) -> dict[str, Any]:
    """What is told of a call, without its times."""
    ranks = calls.groups[entry.group][rank]
    takes, gives, bytes_in, bytes_out = _tensors(entry, len(ranks))
    inside = root and entry.file.startswith(f"{root.rstrip('/')}/")
    file = os.path.relpath(entry.file, root) if inside else entry.file
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
    """A tensor for each rank, where they stand as one."""
    if len(tensors) != 1:
        return tensors
    dtype, sizes = tensors[0]
    return [[dtype, sizes[1:]]] * ranks if sizes and sizes[0] == ranks else []
