"""`lab trace`: print the traffic between ranks as tables or JSON, or write the trace for other tools.

Examples:
  lab trace                          tables: operations, and bytes from rank to rank
  lab trace --json | jq .steps       everything, as data
  lab trace --chrome                 into the record; open it at https://ui.perfetto.dev
  lab trace --flight-recorder dumps && torchfrtrace dumps -p rank_

FOLDER gets one file per rank. Without FILE or FOLDER, the trace goes into the record of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from lab.cli.arguments import add_record, open_record, print_sanitized
from lab.errors import RecordError, UsageError
from lab.features.calls.notation import step_facts
from lab.features.export import CHROME, FLIGHT_RECORDER
from lab.features.traffic.traffic import build_matrix, matrix_view, size_of, summarize_operations
from lab.record.read import Record
from lab.record.record_files import is_record, write_file
from lab.report.style import Style, style_for, table_text
from lab.trace.model import Buffer, Call, Phase, Trace
from lab.trace.read import open_trace
from lab.trace.steps import Step, match_steps
from lab.words import format_bytes, format_count, format_duration, format_rate

_NAMES = {"begin": "begin_s", "end": "end_s", "source": "at", "asynchronous": "async", "is_inplace": "in_place"}
"""Fields that have another name in JSON."""
_OF_RANK = ("rank", "recorder", "torch", "stopped")


def trace_json(record: Record, trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """Return everything that is known of the communication of a run; all times count from its first line."""
    nodes = record.ranks()
    phases = sorted((phase for rank in trace.ranks.values() for phase in rank.phases), key=lambda phase: phase.begin)
    return {
        "run": record.run,
        "world_size": trace.world_size,
        "clock": {"origin_unix_s": trace.origin, "error_s": trace.clocks.error_s},
        "problems": trace.problems,
        "ranks": [
            {name: getattr(rank, name) for name in _OF_RANK}
            | {"node": nodes.get(rank.rank, ""), "first_s": rank.first, "last_s": rank.last, "calls": len(rank.calls)}
            for rank in trace.ranks.values()
        ],
        "groups": [{**asdict(group), "label": group.label} for group in trace.groups.values()],
        "steps": [_step(step) for step in steps],
        "marks": [_fields(phase) for phase in phases],
        "buckets": [asdict(layout) for rank in trace.ranks.values() for layout in rank.buckets],
        "traffic": {"logical_bytes": build_matrix(steps, trace.world_size)},
        "operations": [asdict(row) for row in summarize_operations(steps)],
        "operations_by_size": [asdict(row) for row in summarize_operations(steps, by_size=True)],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        **step_facts(step),
        "title": step.title,
        "group": step.group.name,
        "bytes": size_of(step),
        "expected": list(step.expected),
        "waited_s": {str(rank): seconds for rank, seconds in step.waited.items()},
        "calls": [_call(call) for _, call in sorted(step.calls.items())],
    }


def _call(call: Call) -> dict[str, Any]:
    facts = {name: value for name, value in _fields(call).items() if name not in ("group", "seq")}
    tensors = {"inputs": [_fields(buffer) for buffer in call.inputs], "outputs": [_fields(b) for b in call.outputs]}
    splits = None if call.splits is None else {"output": call.splits[0], "input": call.splits[1]}
    return {**facts, **tensors, "splits": splits, "state": call.state}


def _fields(one: Call | Buffer | Phase) -> dict[str, Any]:
    return {_NAMES.get(field.name, field.name): getattr(one, field.name) for field in fields(one)}


_SIZES = "bytes, algbw, busbw as nccl-tests counts them; time from the entry of the last rank to the exit of the last"
_LOGICAL = (
    "bytes from rank (row) to rank (column), as if each byte went straight to the rank that needs it; "
    "how a backend routes them is not visible"
)


def traffic_text(run: str, trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """Render the tables, and what the trace lacks."""
    collectives = sum(1 for step in steps if not step.message)
    called = f"{format_count(collectives, 'collective')} and {format_count(len(steps) - collectives, 'message')}"
    parts = [f"{style.paint(run, 'bold')}: {called} of {format_count(trace.world_size, 'rank')}"]
    if steps:
        header = ["operation", "count", "bytes", "median", "total", "waited", "algbw", "busbw"]
        rows = []
        for row in summarize_operations(steps):
            count = str(row.count) if row.finished == row.count else f"{row.count}, finished {row.finished}"
            times = map(format_duration, (row.median_s, row.total_s if row.finished else None, row.waited_s))
            rows.append([row.op, count, format_bytes(row.bytes), *times, *map(format_rate, (row.algbw, row.busbw))])
        parts.append(f"{table_text(header, rows, style)}\n{style.paint(_SIZES, 'dim')}")
        parts.append(_matrix(steps, trace.world_size, style))
    if trace.problems:
        parts.append("\n".join(style.paint(problem, "yellow") for problem in trace.problems))
    return "\n\n".join(filter(None, parts))


def _matrix(steps: Sequence[Step], world_size: int, style: Style) -> str:
    if (matrix := matrix_view(steps, range(world_size))) is None:
        return style.paint(f"the traffic between ranks is left out: {world_size:,} ranks are too many pairs", "dim")
    header = ["from \\ to", *(str(name) for name, _ in matrix), "sent"]
    rows = [[str(name), *map(format_bytes, row), format_bytes(sum(row))] for name, row in matrix]
    return f"{table_text(header, rows, style)}\n{style.paint(_LOGICAL, 'dim')}" if matrix else ""


_IN_RECORD = ""
"""Without a name the file is written into the record."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "write Chrome's trace event format, which https://ui.perfetto.dev opens"
    parser.add_argument("--chrome", metavar="FILE", nargs="?", const=_IN_RECORD, help=about)
    about = "write flight recorder dumps, for torchfrtrace"
    parser.add_argument("--flight-recorder", metavar="FOLDER", nargs="?", const=_IN_RECORD, help=about)
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print or write the trace; this needs no engine."""
    file, folder = arguments.chrome, arguments.flight_recorder
    _refuse_unfit(arguments)
    record = open_record(arguments)
    trace = open_trace(record)
    steps = match_steps(trace)
    written = list[str]()
    if file is not None:
        from lab.features.export.tracks import chrome_trace

        written.append(_write_files(record, CHROME, file, {"": chrome_trace(record, trace, steps)}))
    if folder is not None:
        from lab.features.export.flight_recorder import rank_dumps

        written.append(_write_files(record, FLIGHT_RECORDER, folder, dict(rank_dumps(trace, steps))))
    if arguments.json:
        print(json.dumps(trace_json(record, trace, steps), separators=(",", ":")))
    elif file is None and folder is None:
        print_sanitized(traffic_text(record.run, trace, steps, style_for(sys.stdout)))
    else:
        print_sanitized("\n".join(written))
    return 0


def _refuse_unfit(arguments: argparse.Namespace) -> None:
    chosen = {"--chrome": (arguments.chrome, "file"), "--flight-recorder": (arguments.flight_recorder, "folder")}
    for option, (path, kind) in chosen.items():
        if path and is_record(arguments.runs / path):
            raise UsageError(f"{path} is a run, but {option} takes a {kind}", f"use `lab trace {path} {option}`")


def _write_files(record: Record, name_in_record: str, path: str, files: Mapping[str, bytes]) -> str:
    """Write a file, whose name is empty, or the files of a folder; return a line about it.

    Args:
        record: Of the run.
        name_in_record: Where they are in the record, without a path.
        path: Where to write them; empty: into the record.
        files: Content by name.
    """
    target = Path(path) if path else record.path / name_in_record
    with RecordError.on_os_error(f"cannot write {target}", "choose a writable folder"):
        if path and "" not in files:
            target.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            if path:
                (target / name).write_bytes(data)
            else:
                write_file(record.path, f"{name_in_record}/{name}".rstrip("/"), data)
    where = target if "" in files else f"{format_count(len(files), 'file')} into {target}"
    return f"wrote {where} ({sum(map(len, files.values())):,} bytes)"
