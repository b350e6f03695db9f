"""`lab trace`: print the traffic between ranks as tables or JSON, or write the trace for other tools.

Examples:
  lab trace                          tables: operations, and bytes from rank to rank
  lab trace --json | jq .steps       everything, as data
  lab trace --perfetto               into the record; open it at https://ui.perfetto.dev
  lab trace --chrome run.json        the same for chrome://tracing and others
  lab trace --flight-recorder dumps && torchfrtrace dumps -p rank_

With FILE -, the trace goes to standard output; without FILE, into the record of the run.
FOLDER gets one file per rank; without FOLDER, the files go into the record of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from lab.cli.arguments import add_record, open_record, print_sanitized
from lab.errors import RecordError, UsageError
from lab.feature import import_entry
from lab.features.calls.notation import step_facts
from lab.features.export import CHROME, FLIGHT_RECORDER, HTA, PERFETTO
from lab.features.traffic.traffic import build_matrix, size_of, summarize_operations
from lab.record.read import Record
from lab.record.record_files import is_record, write_file
from lab.report.style import Style, group_equal, range_text, style_for, table_text
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


_WIDEST_MATRIX = 16
_MOST_PAIRS = 4
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
    return "\n\n".join(parts)


def _matrix(steps: Sequence[Step], world_size: int, style: Style) -> str:
    if (sent := build_matrix(steps, world_size)) is None:
        return style.paint(f"the traffic between ranks is left out: {world_size:,} ranks are too many pairs", "dim")
    header = ["from \\ to", *map(str, range(world_size)), "sent"]
    rows = [[str(i), *map(format_bytes, row), format_bytes(sum(row))] for i, row in enumerate(sent)]
    if world_size > _WIDEST_MATRIX:
        sizes = ((i * world_size + j, size) for i, row in enumerate(sent) for j, size in enumerate(row) if size)
        # what few pairs have, first
        kinds = sorted(group_equal(sizes), key=lambda one: (len(one[0]), -one[1]))
        header, rows = ["from → to", "bytes each"], []
        for pairs, size in kinds[:_WIDEST_MATRIX]:
            names = [f"{i} → {j}" for i, j in (divmod(pair, world_size) for pair in pairs)]
            summary = f"{names[0]}, … {names[-1]}: {format_count(len(names), 'pair')}"
            rows.append([", ".join(names) if len(names) <= _MOST_PAIRS else summary, format_bytes(size)])
        if rest := kinds[_WIDEST_MATRIX:]:
            count = format_count(sum(len(pairs) for pairs, _ in rest), "other pair")
            rows.append([count, range_text((size for _, size in rest), format_bytes)])
    return f"{table_text(header, rows, style)}\n{style.paint(_LOGICAL, 'dim')}"


_STDOUT = "-"
_IN_RECORD = ""
"""Without a name the file is written into the record."""
_FILES = {
    "--perfetto": (PERFETTO, "Perfetto's own format", "tracks:perfetto_trace"),
    "--chrome": (CHROME, "Chrome's trace event format", "tracks:chrome_trace"),
}
_FOLDERS = {
    "--flight-recorder": (FLIGHT_RECORDER, "flight recorder dumps, for torchfrtrace", "flight_recorder:rank_dumps"),
    "--hta": (HTA, "files for Holistic Trace Analysis", "tracks:hta_traces"),
}
_ALL = {**_FILES, **_FOLDERS}
"""The name in a record, a description, and the function that makes it, by option."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (_, what, _) in _ALL.items():
        metavar = "FILE" if name in _FILES else "FOLDER"
        parser.add_argument(name, metavar=metavar, nargs="?", const=_IN_RECORD, help=f"write {what}")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print or write the trace; this needs no engine."""
    names = {name: vars(arguments)[name.strip("-").replace("-", "_")] for name in _ALL}
    quiet = _goes_to_stdout(arguments, names)
    record = open_record(arguments)
    trace = open_trace(record)
    steps = match_steps(trace)
    for option, name in names.items():
        if name is None:
            continue
        default_name, _, maker = _ALL[option]
        export = import_entry(f"lab.features.export.{maker}")
        files = export(trace, steps) if option in _FOLDERS else [("", export(record, trace, steps))]
        if name == _STDOUT:
            sys.stdout.buffer.write(files[0][1])
            sys.stdout.flush()
            continue
        path, written = Path(name) if name else record.path / default_name, list[int]()
        with RecordError.on_os_error(f"cannot write {path}", "choose a writable folder"):
            if name and option in _FOLDERS:
                path.mkdir(parents=True, exist_ok=True)
            for file, data in files:
                if name:
                    (path / file).write_bytes(data)
                else:
                    write_file(record.path, f"{default_name}/{file}".rstrip("/"), data)
                written.append(len(data))
        if not quiet:
            what = f"{format_count(len(written), 'file')} into {path}" if option in _FOLDERS else path
            print_sanitized(f"wrote {what} ({sum(written):,} bytes)")
    if arguments.json:
        print(json.dumps(trace_json(record, trace, steps), separators=(",", ":")))
    elif all(name is None for name in names.values()):
        print_sanitized(traffic_text(record.run, trace, steps, style_for(sys.stdout)))
    return 0


def _goes_to_stdout(arguments: argparse.Namespace, names: Mapping[str, str | None]) -> bool:
    """Return whether a file goes to standard output; two files cannot, and binary data cannot go to a terminal."""
    to_stdout = sorted([name for name in _FILES if names[name] == _STDOUT] + ["--json"] * bool(arguments.json))
    if len(to_stdout) > 1:
        raise UsageError(f"{' and '.join(to_stdout)} cannot both go to standard output", "give one of them a file")
    options: dict[str, list[str]] = defaultdict(list)
    for name, file in names.items():
        kind = "file" if name in _FILES else "folder"
        if file == _STDOUT and kind == "folder":
            raise UsageError(f"{name} writes several files, which cannot go to standard output", "give it a folder")
        if file and is_record(arguments.runs / file):
            raise UsageError(f"{file} is a run, but {name} takes a {kind}", f"use `lab trace {file} {name}`")
        if file and file != _STDOUT:
            options[file].append(name)
    for file, both in options.items():
        if len(both) > 1:
            raise UsageError(f"{' and '.join(sorted(both))} cannot both go to {file}", "name two files")
    if names["--perfetto"] == _STDOUT and sys.stdout.isatty():
        raise UsageError("Perfetto's format is binary, but standard output is a terminal", "give --perfetto a file")
    return bool(to_stdout)
