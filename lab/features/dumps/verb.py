"""`lab import`: make a record of a job that the lab did not run, from its dumps or from partial records.

Examples:
  lab import fr /tmp/dumps          a record of the job, with the cause of its hang
  lab import records /tmp/records   one record and verdict, from what `lab record` left on each machine
  lab explain                       explain that record
  lab report --open                 the same as a page

Copy the dumps of all machines into one folder; each file name ends in the number of its rank. `lab help dumps` says
how a job writes them. The lab runs nothing in them: it refuses a file that is more than plain data.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli import arguments as shared

if TYPE_CHECKING:
    from lab.record.read import Record
    from lab.report.style import Style

_KIND = (
    "fr: flight recorder dumps: nccl_trace_rank_0, ... as PyTorch pickles them, or JSON of fr_trace_json; "
    "records: records of `lab record` on several machines"
)
_LONGEST_NAME = 100
"""Characters of a job's name, which is part of the name of a folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["fr", "records"], metavar="KIND", help=_KIND)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the dumps or records")
    parser.add_argument("--scenario", metavar="NAME", help="name of the job (default: name of the folder)")
    large = "read up to 1 GiB of dumps and keep up to 1,048,576 calls, 16 times as much as by default"
    parser.add_argument("--large", action="store_true", help=f"{large}; this takes minutes and some GB of memory")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Make the record; needs no engine."""
    name = (arguments.scenario or arguments.folder.resolve().name or "dumps")[:_LONGEST_NAME]
    if arguments.kind == "records":
        return _import_records(arguments, name)
    from lab.features.dumps.dump import DEFAULT, LARGE, Dumps
    from lab.features.dumps.record import import_dumps

    dumps = Dumps(arguments.folder, LARGE if arguments.large else DEFAULT)
    record = import_dumps(dumps, name, arguments.runs)
    data = {**record.result().to_json(), "problems": _problems(record)}
    return shared.print_answer(arguments, lambda: data, lambda style: _text(record, style))


def _import_records(arguments: argparse.Namespace, name: str) -> int:
    """Make a record of each world of a job, and print its verdict."""
    from lab.features.recording.world import import_worlds
    from lab.report.verdict import verdict_text

    results = import_worlds(arguments.folder, arguments.runs, name)
    return shared.print_answer(
        arguments,
        lambda: [result.to_json() for result in results],
        lambda style: "\n".join(verdict_text(result, style) for result in results),
    )


def _problems(record: Record) -> list[str]:
    from lab.record.events import Dumped

    return [text for event in record.events() if isinstance(event, Dumped) for text in event.lacks]


def _text(record: Record, style: Style) -> str:
    from lab.words import capitalize_first, name_ranks

    result = record.result()
    head = f"{style.verdict(result.verdict)}  {style.paint(result.scenario, 'bold')}"
    lines = [head, f"  {capitalize_first(result.reason)}"]
    lines += [f"  - {problem}" for problem in _problems(record)]
    who = name_ranks(rank.rank for rank in result.ranks)
    return "\n".join([*lines, "", f"recorded {who} as {record.run}: `lab explain`, `lab report --open`"])
