"""`lab show`: the result of a run, its steps, what ranks called, or the picture of one step."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli import arguments as shared
from lab.errors import LabError, RecordError, UsageError
from lab.record.layout import TRACE
from lab.record.read import Record, find_record
from lab.report.result_view import result_text
from lab.report.style import Style, style_for

if TYPE_CHECKING:
    from lab.trace.model import Trace
    from lab.trace.steps import Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `lab show` takes."""
    parser.add_argument("run", nargs="?", help="name of a run, or how it begins or ends (default: the latest)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--steps", action="store_true", help="list every collective and every message of the run")
    what.add_argument("--calls", action="store_true", help="print what each rank called, as `expect: calls:` states it")
    what.add_argument("--step", type=shared.positive, metavar="N", help="draw what step N did with everybody's data")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with --step: write the picture to a file instead")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show it; needs no engine."""
    if arguments.svg and not arguments.step:
        raise UsageError("--svg needs --step N: the number of the step to draw", "`lab show --steps` lists them")
    record = find_record(arguments.run, arguments.runs)
    style = style_for(sys.stdout)
    if arguments.steps:
        return _steps(record, style, as_json=arguments.json)
    if arguments.calls:
        return _calls(record, as_json=arguments.json)
    if arguments.step:
        return _step(record, arguments.step, style, arguments.svg, as_json=arguments.json)
    result = record.result()
    if arguments.json:
        print(json.dumps(result.to_json()))
        return 0
    print(result_text(result, style))
    if _traced(record):
        count = len(_matched(record)[1])
        steps = f"{count} step{'' if count == 1 else 's'} recorded"
        print(style.paint(f"{steps}: lab show {record.run} --steps", "dim"))
    return 0


def _traced(record: Record) -> bool:
    folder = record.path / TRACE
    return folder.is_dir() and any(folder.iterdir())


def _matched(record: Record) -> tuple[Trace, list[Step]]:
    from lab.trace.read import read_trace
    from lab.trace.steps import match

    if not _traced(record):
        raise RecordError(f"run {record.run} has no trace", "run it again; `lab run` records one without --no-trace")
    trace = read_trace(record)
    return trace, match(trace)


def _steps(record: Record, style: Style, *, as_json: bool) -> int:
    from lab.report.steps_view import steps_json, steps_text

    trace, steps = _matched(record)
    print(json.dumps(steps_json(trace, steps)) if as_json else steps_text(trace, steps, style))
    return 0


def _calls(record: Record, *, as_json: bool) -> int:
    from lab.report.calls_view import calls_json, calls_text

    trace, _ = _matched(record)
    print(json.dumps(calls_json(trace)) if as_json else calls_text(trace))
    return 0


def _step(record: Record, number: int, style: Style, svg: Path | None, *, as_json: bool) -> int:
    from lab.report.picture.model import picture_of, unrecorded_ranks
    from lab.report.picture.text import picture_text

    trace, steps = _matched(record)
    if not steps:
        raise UsageError(f"run {record.run} has no step {number}: no collective and no message was recorded")
    if number > len(steps):
        raise UsageError(
            f"run {record.run} has no step {number}; allowed: 1 to {len(steps)}", "`lab show --steps` lists them"
        )
    picture = picture_of(steps[number - 1], record.result().expectations, trace.world_size, unrecorded_ranks(trace))
    if svg is not None:
        from lab.report.picture.svg import svg_of

        _write(svg, svg_of(picture, standalone=True))
    if as_json:
        print(json.dumps(picture.to_json()))
    else:
        print(f"wrote {svg}" if svg is not None else picture_text(picture, style, len(steps)))
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}") from error
