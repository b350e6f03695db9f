"""`lab trace`: what the ranks of a run sent each other, as tables, as JSON, or for a viewer of timelines."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lab.cli.answer import say
from lab.cli.on_record import add_record, open_record
from lab.errors import RecordError, UsageError
from lab.record.layout import CHROME, LOGS, PERFETTO

_STDOUT = "-"
_IN_RECORD = ""
"""No file was named: it goes into the record."""
_HOWTO = """examples:
  lab trace                          tables: operations, and bytes from rank to rank
  lab trace --json | jq .steps       everything, as data
  lab trace --perfetto               into the record; open it at https://ui.perfetto.dev
  lab trace --chrome run.json        the same for chrome://tracing and others

FILE may be -, which is standard output; without it, the file is made in the record of the run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    for name, what in (("--perfetto", "Perfetto's own format"), ("--chrome", "Chrome's trace event format")):
        parser.add_argument(name, metavar="FILE", nargs="?", const=_IN_RECORD, help=f"write {what}")
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
        from lab.report.export.chrome import chrome_trace

        data = _dumped(chrome_trace(record, trace, steps))
        _write(arguments.chrome or record.path / CHROME, data, quiet)
    if arguments.perfetto is not None:
        from lab.report.export.perfetto import perfetto_trace

        data = perfetto_trace(record, trace, steps)
        _write(arguments.perfetto or record.path / PERFETTO, data, quiet)
    if arguments.json:
        from lab.report.export.data import trace_json

        print(_dumped(trace_json(record, trace, steps)).decode())
    elif arguments.chrome is None and arguments.perfetto is None:
        from lab.report.style import style_for
        from lab.report.traffic_view import traffic_text

        say(traffic_text(record.run, trace, steps, style_for(sys.stdout)))
    return 0


def _goes_to_stdout(arguments: argparse.Namespace) -> bool:
    """Whether a file goes to standard output. Two cannot, and what is not text cannot go to a terminal."""
    files = {"--chrome": arguments.chrome, "--perfetto": arguments.perfetto}
    to_stdout = [name for name, file in files.items() if file == _STDOUT] + ["--json"] * bool(arguments.json)
    if len(to_stdout) > 1:
        raise UsageError(f"{' and '.join(to_stdout)} cannot both be written to standard output", "give one a file")
    for name, file in files.items():
        if file and (arguments.runs / file / LOGS).is_dir():
            raise UsageError(f"{file} is a run, and {name} takes a file", f"say `lab trace {file} {name}`")
    if arguments.chrome and arguments.chrome != _STDOUT and arguments.chrome == arguments.perfetto:
        raise UsageError(f"--chrome and --perfetto cannot both be written to {arguments.chrome}")
    if arguments.perfetto == _STDOUT and sys.stdout.isatty():
        raise UsageError("Perfetto's format is binary, and standard output is a terminal", "give --perfetto a file")
    return bool(to_stdout)


def _dumped(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _write(name: str | Path, data: bytes, quiet: bool) -> None:
    """Write a file and say where it is, or write to standard output and say nothing."""
    if name == _STDOUT:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        Path(name).write_bytes(data)
    except OSError as error:
        raise RecordError(f"{name} cannot be written: {error.strerror}") from error
    if not quiet:
        print(f"wrote {name} ({len(data):,} bytes)")
