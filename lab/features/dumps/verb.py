"""`lab import`: make a record from the dumps of a job that the lab did not run.

Examples:
  lab import fr /tmp/dumps          a record of the job, with the cause of its hang
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

_KIND = "fr: flight recorder dumps: nccl_trace_rank_0, ... as PyTorch pickles them, or JSON of fr_trace_json"
_LONGEST_NAME = 100
"""Characters of a job's name, which is part of the name of a folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["fr"], metavar="KIND", help=_KIND)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the dumps")
    parser.add_argument("--scenario", metavar="NAME", help="name of the job (default: name of the folder)")
    large = "read up to 1 GiB of dumps and keep up to 1,048,576 calls, 16 times as much as by default"
    parser.add_argument("--large", action="store_true", help=f"{large}; this takes minutes and some GB of memory")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Make the record; needs no engine."""
    from lab.features.dumps.dump import DEFAULT, LARGE, Dumps
    from lab.features.dumps.record import import_dumps

    dumps = Dumps(arguments.folder, LARGE if arguments.large else DEFAULT)
    name = arguments.scenario or arguments.folder.resolve().name or "dumps"
    record = import_dumps(dumps, name[:_LONGEST_NAME], arguments.runs)
    data = {**record.result().to_json(), "problems": _problems(record)}
    return shared.print_answer(arguments, lambda: data, lambda style: _text(record, style))


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
