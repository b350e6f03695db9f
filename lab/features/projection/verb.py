"""`lab project`: what a training step of a recorded run would take on larger worlds, and over other networks."""

from __future__ import annotations

import argparse
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.arguments import add_attempt, answer, write_text
from lab.errors import UsageError
from lab.record.read import find_record

_HOWTO = """examples:
  lab project --ranks 8,16                                the latest run, on larger worlds of the same kind
  lab project RUN --ranks 8,64,512,4096 --network lan-100g,racks=16
  lab project RUN-OF-2 RUN-OF-4 --ranks 8 --svg steps.svg  fitted to both

--network NAME[,racks=N][,rate=100gbit][,between=10gbit][,alpha=10us]: a profile of `network:` and what differs from it.
`measured`: the network and the cores of the record. docs/projection.md says what is assumed, and how far it held."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from lab.features.projection.costs import LIBRARIES, MEASURED

    parser.epilog = _HOWTO
    runs = parser.add_argument(
        "names",
        nargs="*",
        metavar="RUN",
        help="runs of one training, with different numbers of ranks (default: the latest)",
    )
    shared.completes(runs, "runs")
    parser.add_argument(
        "--ranks",
        type=ranks,
        metavar="N,N",
        help="sizes of worlds (default: 8,64,512,4096, as far as the run allows)",
    )
    parser.add_argument("--network", default=MEASURED, metavar="NETWORK", help=f"of these worlds (default: {MEASURED})")
    parser.add_argument(
        "--library",
        choices=tuple(LIBRARIES),
        help="what chooses among algorithms (default: that of the record on its network, nccl on others)",
    )
    parser.add_argument(
        "--others",
        type=others,
        metavar="N",
        help="programs that want a core beside the ranks, on the machine of the record (default: as many as on record)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a plot of the step times to a file instead")
    add_attempt(parser)
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Project it; needs no engine."""
    from lab.features.projection.costs import parse_network
    from lab.features.projection.project import project, source_of
    from lab.features.projection.view import projection_json, projection_svg, projection_text
    from lab.trace.read import open_trace

    target = parse_network(arguments.network)
    if target is None and arguments.library is not None:
        raise UsageError("--library needs --network: on the measured network calls go on as they were recorded")
    if target is not None and arguments.others is not None:
        raise UsageError("--others belongs to the measured network: on others each rank has cores of its own")
    records = [find_record(name, arguments.runs).attempt(arguments.attempt) for name in arguments.names or [None]]
    sources = [source_of(record.run, open_trace(record)) for record in records]
    found = project(sources, arguments.ranks, target, arguments.library, arguments.others)
    if arguments.svg is not None:
        write_text(arguments.svg, projection_svg(found))
    return answer(
        arguments,
        lambda: projection_json(found),
        lambda style: f"wrote {arguments.svg}" if arguments.svg is not None else projection_text(found, style),
    )


def ranks(text: str) -> tuple[int, ...]:
    """Numbers with commas between them."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 1 for word in words):
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: numbers of ranks, 2 or more, such as 8,64,512")
    return tuple(map(int, words))


def others(text: str) -> float:
    """So many programs, perhaps not all of the time."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e6:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a number of programs, such as 0 or 1.5")
    return number
