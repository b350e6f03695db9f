"""`lab show`: the result of a run, its steps, what ranks called, or the picture of one step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli import argument_types as types
from lab.cli.answer import answer, write_text
from lab.cli.on_record import add_record, open_record
from lab.errors import RecordError, UsageError
from lab.record.layout import TRACE
from lab.record.read import Record
from lab.record.record_files import list_names
from lab.report.result_view import result_text
from lab.report.style import Style
from lab.words import plural

if TYPE_CHECKING:
    from lab.trace.model import Trace
    from lab.trace.steps import Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--steps", action="store_true", help="list every collective and every message of the run")
    what.add_argument("--calls", action="store_true", help="print what each rank called, as `expect: calls:` states it")
    what.add_argument("--step", type=types.positive, metavar="N", help="draw what step N did with everybody's data")
    what.add_argument(
        "--model",
        action="store_true",
        help="hold the all_reduces of the run, and of those made with it, against the alpha-beta model of a network",
    )
    what.add_argument(
        "--connections",
        action="store_true",
        help="print what kernels said of the connections between nodes",
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="with --step or --model: write the picture to a file instead"
    )
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show it; needs no engine."""
    if arguments.svg and not (arguments.step or arguments.model):
        raise UsageError("--svg needs --step N: the number of the step to draw", "`lab show --steps` lists them")
    record = open_record(arguments)
    if arguments.model:
        return _model(record, arguments)
    if arguments.connections:
        from lab.report.connections_view import connections_json, connections_text

        facts = [*record.events()]
        return answer(arguments, lambda: connections_json(facts), lambda style: connections_text(facts, style))
    if arguments.steps:
        from lab.report.steps_view import steps_json, steps_text

        trace, steps = _matched(record)
        return answer(arguments, lambda: steps_json(trace, steps), lambda style: steps_text(trace, steps, style))
    if arguments.calls:
        from lab.report.calls_view import calls_json, calls_text

        trace, _ = _matched(record)
        return answer(arguments, lambda: calls_json(trace), lambda _: calls_text(trace))
    if arguments.step:
        return _step(record, arguments)
    result = record.result()
    return answer(arguments, result.to_json, lambda style: result_text(result, style) + _further(record, style))


def _further(record: Record, style: Style) -> str:
    """What else there is to see."""
    from lab.explain.backend import find_named_backends
    from lab.verdict.facts import read_facts

    more = [finding.sentence for finding in find_named_backends(read_facts(record).named)]
    if _traced(record):
        more.append(f"{plural(len(_matched(record)[1]), 'step')} recorded: lab show {record.run} --steps")
    return "".join("\n" + style.paint(line, "dim") for line in more)


def _traced(record: Record) -> bool:
    return bool(list_names(record.path, TRACE))


def _matched(record: Record) -> tuple[Trace, list[Step]]:
    from lab.trace.read import read_trace
    from lab.trace.steps import match

    if not _traced(record):
        raise RecordError(f"run {record.run} has no trace", "run it again; `lab run` records one without --no-trace")
    trace = read_trace(record)
    return trace, match(trace)


def _model(record: Record, arguments: argparse.Namespace) -> int:
    """The run, or all runs that one command made together with it."""
    from lab.record.suite import earlier_records
    from lab.report.network_view import network_json, network_svg, network_text
    from lab.trace.pace import pace_of

    together = earlier_records(record.run, record.path.parent) if record.run_of_attempt is None else [record]
    paces = {one.run: pace_of(*_matched(one)) for one in together if _traced(one)} or {
        record.run: pace_of(*_matched(record))
    }
    if arguments.svg is not None:
        write_text(arguments.svg, network_svg(paces))
    return answer(
        arguments,
        lambda: network_json(paces),
        lambda style: f"wrote {arguments.svg}" if arguments.svg is not None else network_text(paces, style),
    )


def _step(record: Record, arguments: argparse.Namespace) -> int:
    from lab.report.picture.model import picture_of, unrecorded_ranks
    from lab.report.picture.text import picture_text

    number, svg = arguments.step, arguments.svg
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

        write_text(svg, svg_of(picture, standalone=True))
    return answer(
        arguments,
        picture.to_json,
        lambda style: f"wrote {svg}" if svg is not None else picture_text(picture, style, len(steps)),
    )
