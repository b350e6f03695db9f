"""`lab trace`: what the ranks of a run sent each other, as tables, as JSON, or for other tools."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.cli.arguments import add_record, open_record, say
from lab.errors import RecordError, UsageError
from lab.record.layout import CHAKRA, CHROME, FLIGHT_RECORDER, HTA, LOGS, PERFETTO
from lab.record.record_files import has_log_folder, write_file
from lab.words import plural

if TYPE_CHECKING:
    from lab.record.read import Record
    from lab.trace.model import Trace
    from lab.trace.steps import Step

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
        from lab.features.export.chrome import chrome_trace

        data = _dumped(chrome_trace(record, trace, steps))
        _write(arguments.chrome, data, quiet, record, CHROME)
    if arguments.perfetto is not None:
        from lab.features.export.perfetto import perfetto_trace

        data = perfetto_trace(record, trace, steps)
        _write(arguments.perfetto, data, quiet, record, PERFETTO)
    folders = {name: folder for name in _FOLDERS if (folder := _value(arguments, name)) is not None}
    for name, folder in folders.items():
        _fill(folder, _files_for(name, trace, steps), quiet, record, _FOLDERS[name][0])
    if arguments.json:
        from lab.report.trace_data import trace_json

        print(_dumped(trace_json(record, trace, steps)).decode())
    elif not folders and arguments.chrome is None and arguments.perfetto is None:
        from lab.features.export.traffic_view import traffic_text
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
    from lab.features.export.hta import hta_traces

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
        if file and has_log_folder(arguments.runs / file, LOGS):
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
