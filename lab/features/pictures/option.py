"""`lab show --step N`: the picture of one step."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.cli.cmd_show import read_steps
from lab.errors import UsageError


def add_arguments(parser: Parser) -> None:
    about = "draw the data of all ranks in step N"
    parser.one_of().add_argument("--step", type=shared.positive, metavar="N", help=about)
    shared.add_options(parser, "--svg")


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Draw the step if `--step` was given; this needs no engine."""
    number, svg = arguments.step, arguments.svg
    if not number:
        if svg:
            raise UsageError("--svg needs --step N: the number of the step to draw", "`lab show --steps` lists them")
        return verb(arguments)
    from lab.features.pictures.model import picture_of, unrecorded_ranks
    from lab.features.pictures.text import picture_text

    record = shared.open_record(arguments)
    trace, steps = read_steps(record)
    if number > len(steps):
        allowed = f"allowed: 1 to {len(steps)}" if steps else "the record has no collective and no message"
        raise UsageError(f"run {record.run} has no step {number}; {allowed}", "`lab show --steps` lists them")
    picture = picture_of(steps[number - 1], record.result().expectations, trace.world_size, unrecorded_ranks(trace))
    if svg is not None:
        from lab.features.pictures.svg import svg_of

        shared.write_text(svg, svg_of(picture, standalone=True))
        return shared.print_answer(arguments, picture.to_json, lambda _: f"wrote {svg}")
    return shared.print_answer(arguments, picture.to_json, lambda style: picture_text(picture, style, len(steps)))
