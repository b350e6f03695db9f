"""`lab trace`: what the ranks of a run sent each other, as tables, as JSON, or for other tools."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.cli.arguments import add_record, open_record, say
from lab.errors import RecordError, UsageError
from lab.features.traffic.traffic import OpRow, matrix, operations
from lab.record.layout import CHAKRA, CHROME, FLIGHT_RECORDER, HTA, PERFETTO
from lab.record.record_files import is_record, write_file
from lab.report.style import Style
from lab.report.table import alike, range_text, table_text
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.words import format_bytes, format_duration, format_rate, plural

if TYPE_CHECKING:
    from lab.record.read import Record
    from lab.trace.model import Trace
    from lab.trace.steps import Step

_WIDEST_MATRIX = 16
_MOST_PAIRS = 4
_SIZES = (
    "bytes, algbw and busbw as nccl-tests counts them, time from when the last rank entered to when the last was done"
)
_LOGICAL = (
    "bytes from rank (row) to rank (column), as if each went straight to where it is needed; "
    "how a backend routes them is not visible"
)


def traffic_text(run: str, trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """The tables, and what the trace lacks."""
    collectives = sum(1 for step in steps if not step.message)
    messages = len(steps) - collectives
    head = (
        f"{plural(collectives, 'collective')} and {plural(messages, 'message')} of {plural(trace.world_size, 'rank')}"
    )
    parts = [f"{style.paint(run, 'bold')}: {head}"]
    if steps:
        parts += [_operations(steps, style), _matrix(steps, trace.world_size, style)]
    if trace.problems:
        parts.append("\n".join(style.paint(problem, "yellow") for problem in trace.problems))
    return "\n\n".join(parts)


def _operations(steps: Sequence[Step], style: Style) -> str:
    header = ["operation", "count", "bytes", "median", "total", "waited", "algbw", "busbw"]
    rows = []
    for row in operations(steps):
        total = format_duration(row.total_s if row.finished else None)
        times = [format_duration(row.median_s), total, format_duration(row.waited_s)]
        rows.append([row.op, _count(row), format_bytes(row.bytes), *times, *map(format_rate, (row.algbw, row.busbw))])
    return f"{table_text(header, rows, style)}\n{style.paint(_SIZES, 'dim')}"


def _count(row: OpRow) -> str:
    return str(row.count) if row.finished == row.count else f"{row.count}, finished {row.finished}"


def _pairs(pairs: Sequence[int], world_size: int) -> str:
    """Pairs of ranks by their numbers in the matrix: a few by themselves, many by how many they are."""
    named = [f"{i} → {j}" for i, j in (divmod(pair, world_size) for pair in pairs)]
    return ", ".join(named) if len(named) <= _MOST_PAIRS else f"{named[0]}, … {named[-1]}: {plural(len(named), 'pair')}"


def _matrix(steps: Sequence[Step], world_size: int, style: Style) -> str:
    sent = matrix(steps, world_size)
    if sent is None:
        return style.paint(f"who sent how much to whom is left out: {world_size:,} ranks are too many pairs", "dim")
    if world_size > _WIDEST_MATRIX:
        pairs = alike((i * world_size + j, size) for i, row in enumerate(sent) for j, size in enumerate(row) if size)
        pairs.sort(key=lambda one: (len(one[0]), -one[1]))  # what few pairs have, first
        rows = [[_pairs(ours, world_size), format_bytes(size)] for ours, size in pairs[:_WIDEST_MATRIX]]
        if len(pairs) > _WIDEST_MATRIX:
            left = sum(len(ours) for ours, _ in pairs[_WIDEST_MATRIX:])
            rows.append(
                [
                    f"{plural(left, 'other pair')}",
                    range_text((size for _, size in pairs[_WIDEST_MATRIX:]), format_bytes),
                ]
            )
        header = ["from → to", "bytes each"]
    else:
        rows = [[str(i), *map(format_bytes, row), format_bytes(sum(row))] for i, row in enumerate(sent)]
        header = ["from \\ to", *map(str, range(world_size)), "sent"]
    return f"{table_text(header, rows, style)}\n{style.paint(_LOGICAL, 'dim')}"


_STDOUT = "-"
_IN_RECORD = ""
"""No file was named: it goes into the record."""
_FILES = {"--perfetto": "Perfetto's own format", "--chrome": "Chrome's trace event format"}
_FOLDERS = {
    "--flight-recorder": (FLIGHT_RECORDER, "flight recorder dumps, which torchfrtrace reads"),
    "--chakra": (CHAKRA, "Chakra execution traces, as ASTRA-sim reads them"),
    "--hta": (HTA, "what Holistic Trace Analysis reads"),
}
_HOWTO = """examples:
  lab trace                          tables: operations, and bytes from rank to rank
  lab trace --json | jq .steps       everything, as data
  lab trace --perfetto               into the record; open it at https://ui.perfetto.dev
  lab trace --chrome run.json        the same for chrome://tracing and others
  lab trace --flight-recorder dumps && torchfrtrace dumps -p rank_

FILE may be -, which is standard output; without it, the file is made in the record of the run.
FOLDER is filled with a file of each rank; without it, it is made in the record of the run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    for name, what in _FILES.items():
        parser.add_argument(name, metavar="FILE", nargs="?", const=_IN_RECORD, help=f"write {what}")
    for name, (_, what) in _FOLDERS.items():
        parser.add_argument(name, metavar="FOLDER", nargs="?", const=_IN_RECORD, help=f"write {what}")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print or write it; needs no engine."""
    quiet = _goes_to_stdout(arguments)
    from lab.trace.read import open_trace
    from lab.trace.steps import match

    record = open_record(arguments)
    trace = open_trace(record)
    steps = match(trace)
    if arguments.chrome is not None:
        from lab.features.export.tracks import chrome_trace

        data = _dumped(chrome_trace(record, trace, steps))
        _write(arguments.chrome, data, quiet, record, CHROME)
    if arguments.perfetto is not None:
        from lab.features.export.tracks import perfetto_trace

        data = perfetto_trace(record, trace, steps)
        _write(arguments.perfetto, data, quiet, record, PERFETTO)
    folders = {name: folder for name in _FOLDERS if (folder := _value(arguments, name)) is not None}
    for name, folder in folders.items():
        _fill(folder, _files_for(name, trace, steps), quiet, record, _FOLDERS[name][0])
    if arguments.json:
        from lab.features.export.trace_json import trace_json

        print(_dumped(trace_json(record, trace, steps)).decode())
    elif not folders and arguments.chrome is None and arguments.perfetto is None:
        from lab.report.style import style_for

        say(traffic_text(record.run, trace, steps, style_for(sys.stdout)))
    return 0


def _files_for(name: str, trace: Trace, steps: list[Step]) -> Iterable[tuple[str, bytes]]:
    if name == "--flight-recorder":
        from lab.features.export.flight_recorder import flight_recorder_dumps

        return flight_recorder_dumps(trace, steps)
    if name == "--chakra":
        from lab.features.export.chakra import chakra_traces

        traces = chakra_traces(trace, steps)
        if traces.left_out:
            left_out = plural(traces.left_out, "step")
            sys.stderr.write(f"left out: {left_out} that did not end well on all ranks, as no simulator can do them\n")
        return traces.named()
    from lab.features.export.tracks import hta_traces

    return hta_traces(trace)


def _value(arguments: argparse.Namespace, name: str) -> str | None:
    found: str | None = getattr(arguments, name.strip("-").replace("-", "_"))
    return found


def _goes_to_stdout(arguments: argparse.Namespace) -> bool:
    """Whether a file goes to standard output. Two cannot, and what is not text cannot go to a terminal."""
    files = {name: _value(arguments, name) for name in (*_FILES, *_FOLDERS)}
    to_stdout = [name for name in _FILES if files[name] == _STDOUT] + ["--json"] * bool(arguments.json)
    if len(to_stdout) > 1:
        raise UsageError(
            f"{' and '.join(sorted(to_stdout))} cannot both be written to standard output", "give one a file"
        )
    for name, file in files.items():
        kind = "file" if name in _FILES else "folder"
        if file == _STDOUT and kind == "folder":
            raise UsageError(f"{name} writes several files, which cannot go to standard output", "give it a folder")
        if file and is_record(arguments.runs / file):
            raise UsageError(f"{file} is a run, and {name} takes a {kind}", f"say `lab trace {file} {name}`")
    named = [file for file in files.values() if file and file != _STDOUT]
    for file in named:
        if named.count(file) > 1:
            both = " and ".join(sorted(name for name, other in files.items() if other == file))
            raise UsageError(f"{both} cannot both be written to {file}")
    if arguments.perfetto == _STDOUT and sys.stdout.isatty():
        raise UsageError("Perfetto's format is binary, and standard output is a terminal", "give --perfetto a file")
    return bool(to_stdout)


def _dumped(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _write(name: str, data: bytes, quiet: bool, record: Record, own: str) -> None:
    """Write a file and say where it is, or write to standard output and say nothing; unnamed, it is in the record."""
    if name == _STDOUT:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    path = Path(name) if name else record.path / own
    try:
        if name:
            path.write_bytes(data)
        else:
            write_file(record.path, own, data)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror}") from error
    if not quiet:
        say(f"wrote {path} ({len(data):,} bytes)")


def _fill(name: str, files: Iterable[tuple[str, bytes]], quiet: bool, record: Record, own: str) -> None:
    """Write files into a folder, which is made, and say what came there; unnamed, it is in the record."""
    count, size, path = 0, 0, Path(name) if name else record.path / own
    try:
        if name:
            path.mkdir(parents=True, exist_ok=True)
        for file, data in files:
            if name:
                (path / file).write_bytes(data)
            else:
                write_file(record.path, f"{own}/{file}", data)
            count, size = count + 1, size + len(data)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror}") from error
    if not quiet:
        say(f"wrote {plural(count, 'file')} into {path} ({size:,} bytes)")
