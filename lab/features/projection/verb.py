"""`lab project`: what a training step of a recorded run would take on larger worlds, and over other networks."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.cli.arguments import add_attempt, answer, write_text
from lab.errors import UsageError
from lab.features.projection.costs import MEASURED
from lab.features.projection.project import Projection
from lab.features.timeline.svg import LogScale, Shapes, element, text, title
from lab.record.read import find_record
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import NONE, format_bytes, format_duration, format_rate, listing, plural

_BAR = 40
_FEW = 0.1
"""Fewer other programs are not worth a word."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 760.0, 320.0, 92.0, 30.0, 50.0
_OWN, _HELD, _BAND = "#4474b0", "#d9822b", "#c9d6ea"


def projection_json(projection: Projection) -> dict[str, Any]:
    """All of it as plain data."""
    data = asdict(projection)
    data["runs"] = [{"run": run, "ranks": ranks} for run, ranks in projection.runs]
    data["fits"] = [
        {
            "op": fit.op,
            "algorithm": fit.algorithm,
            "alpha_s": fit.line.alpha_s,
            "bandwidth": 1 / fit.line.inverse if fit.line.inverse else None,
            "error": fit.line.error,
            "shared": fit.shared,
            "samples": [asdict(sample) for sample in fit.samples],
        }
        for fit in projection.fits.values()
    ]
    return data


def projection_text(projection: Projection, style: Style) -> str:
    """The step times, a picture of them, and what they rest on."""

    def table(heading: str, header: str, rows: list[list[str]]) -> str:
        head = f"{style.paint(heading, 'bold')}\n" if heading else ""
        return head + table_text(header.split("; "), rows, style)

    worlds, checks, fits = [], [], []
    for row in projection.rows:
        between = f"{format_duration(row.low_s)} to {format_duration(row.high_s)}"
        parts = [format_duration(one) for one in (row.own_s, row.exposed_s, row.waiting_s)]
        moving = row.hidden_s + row.exposed_s
        hidden = _percent(row.hidden_s / moving if moving else None)
        worlds.append([f"{row.ranks:,}", format_duration(row.step_s), between, *parts, hidden])
    calls = [
        [
            f"{row.ranks:,}" if number == 0 else "",
            call.op,
            f"{call.ranks:,}",
            format_bytes(call.bytes),
            f"{call.count:,}",
            call.algorithm,
            format_duration(call.seconds),
        ]
        for row in projection.rows
        for number, call in enumerate(row.calls)
    ]
    for row in projection.checks:
        measured = row.measured_s or row.step_s
        off = f"{100 * (row.step_s / measured - 1):+.1f} %"
        checks.append([f"{row.ranks:,}", format_duration(measured), format_duration(row.step_s), off])
    for fit in projection.fits.values():
        bandwidth = format_rate(1 / fit.line.inverse) if fit.line.inverse else NONE
        error = _percent(fit.line.error) + (" of all together" if fit.shared else "")
        count = sum(sample.count for sample in fit.samples)
        shown = [format_duration(fit.line.alpha_s), bandwidth, error, str(len(fit.samples)), f"{count:,}"]
        fits.append([fit.op, fit.algorithm, *shown])
    legend = (
        "exposed: communication that held ranks up; waiting: for other ranks; hidden: communication beside own work"
    )
    return "\n\n".join(
        [
            _head(projection, style),
            table("", "ranks; step; between; own work; exposed; waiting; hidden", worlds)
            + f"\n{style.paint(legend, 'dim')}",
            _bars(projection, style),
            table(
                "what is called in a step",
                "ranks; operation; of ranks; bytes; in a step; algorithm; each takes",
                calls,
            ),
            table("the same for the worlds on record", "ranks; step, measured; replayed; off", checks),
            table("what their calls took", "operation; algorithm; α; B; error; sizes; calls", fits),
            "\n".join(style.paint(line, "dim") for line in _assumed(projection)),
        ]
    )


def _head(projection: Projection, style: Style) -> str:
    run, ranks = projection.runs[-1]
    others = [f"{name} ({plural(count, 'rank')})" for name, count in projection.runs[:-1]]
    beside = f", with {listing(others)}" if others else ""
    left = f"; {plural(projection.left_out, 'other')} left out" if projection.left_out else ""
    steps = f"{plural(projection.steps, 'step')} of training that are alike{left}"
    machine = projection.machine
    shared = "" if machine is None else f", all ranks on {plural(round(machine.cores), 'core')}"
    if machine is not None and machine.others >= _FEW:
        shared += f", beside {machine.others:.1f} other programs that want a core"
    return (
        f"{style.paint(run, 'bold')} ({plural(ranks, 'rank')}){beside}: {steps}\n"
        f"network: {projection.network}{shared}; algorithms: {projection.library}"
    )


def _bars(projection: Projection, style: Style) -> str:
    longest = max(row.high_s for row in projection.rows)
    lines = []
    for row in projection.rows:
        step, high = (max(1, round(_BAR * one / longest)) for one in (row.step_s, row.high_s))
        whole = row.own_s + row.exposed_s + row.waiting_s
        own, exposed = (round(step * (one / whole if whole else 0.0)) for one in (row.own_s, row.exposed_s))
        waiting = max(0, step - own - exposed)
        pieces = ((own, "█", "blue"), (exposed, "▓", "yellow"), (waiting, "░", "magenta"))
        bar = "".join(style.paint(sign * columns, colour) for columns, sign, colour in pieces)
        rest = max(0, high - own - exposed - waiting)
        lines.append(f"{row.ranks:>9,} {bar}{'·' * rest}{' ' * (_BAR - high)} {format_duration(row.step_s)}")
    legend = "█ own work  ▓ exposed communication  ░ waiting  · it may take as long"
    return "\n".join([*lines, style.paint(f"{'':>9} {legend}", "dim")])


def _assumed(projection: Projection) -> list[str]:
    """What is taken for granted, a line each."""
    said = [f"Assumed: {sentence}." for sentence in projection.assumed]
    if projection.machine is None and projection.network != MEASURED:
        said.append("Assumed: each rank has cores of its own; what ranks took from one another on record is taken out.")
    elif projection.machine is not None:
        said.append("Assumed: all ranks share the cores on which the run was recorded, and what else went on there.")
    else:
        said.append("Assumed: cores are shared as on record, as it does not tell of one machine for all ranks.")
    said.append(
        "`between` is made of the errors of the model on record, of what transfers may be off "
        f"({_percent(projection.error)}) and of how steps vary; it widens with each doubling of ranks."
    )
    return said


def _percent(part: float | None) -> str:
    return NONE if part is None else f"{100 * part:.0f} %"


def projection_svg(projection: Projection) -> str:
    """Step time by ranks: projected (line) with its interval (band), and measured (rings)."""
    shapes = Shapes()
    rows, measured = projection.rows, projection.checks
    ranks = [row.ranks for row in (*rows, *measured)]
    times = [one for row in rows for one in (row.low_s, row.high_s)] + [
        row.measured_s or row.step_s for row in measured
    ]
    across = LogScale(min(ranks), max(ranks), _LEFT, _WIDTH - _RIGHT)
    up = LogScale(min(times), max(times), _HEIGHT, _TOP)
    run = projection.runs[-1][0]
    text(shapes, _LEFT, 16, f"time of a training step by ranks: {run}, {projection.network}", size=13)
    text(shapes, _LEFT, 34, "projected (line, with its interval) and measured (rings)", size=11)
    for time in up.ticks():
        place = up.place(time)
        shapes.add(element("path", d=f"M{_LEFT:g} {place:.1f}H{_WIDTH - _RIGHT:g}", stroke="#ddd"))
        text(shapes, 6, place + 4, format_duration(time), size=11)
    for count in sorted({row.ranks for row in (*rows, *measured)}):
        place = across.place(count)
        shapes.add(element("path", d=f"M{place:.1f} {_TOP:g}V{_HEIGHT:g}", stroke="#eee"))
        text(shapes, place, _HEIGHT + 18, f"{count:,}", size=11, text_anchor="middle")
    there = [(across.place(row.ranks), up.place(row.low_s)) for row in rows]
    back = [(across.place(row.ranks), up.place(row.high_s)) for row in reversed(rows)]
    shapes.add(element("polygon", points=_points([*there, *back]), fill=_BAND, opacity=0.6))
    line = [(across.place(row.ranks), up.place(row.step_s)) for row in rows]
    shapes.add(element("polyline", points=_points(line), fill="none", stroke=_OWN, stroke_width=1.5))
    for row, (x, y) in zip(rows, line, strict=True):
        told = title(f"{row.ranks:,} ranks: {format_duration(row.step_s)}, own work {format_duration(row.own_s)}, "
                     f"exposed {format_duration(row.exposed_s)}, waiting {format_duration(row.waiting_s)}")  # fmt: skip
        shapes.add(element("circle", told, cx=round(x, 1), cy=round(y, 1), r=3.5, fill=_OWN))
        text(shapes, x, y - 9, format_duration(row.step_s), size=11, text_anchor="middle")
    for row in measured:
        time = row.measured_s or row.step_s
        told = title(f"{row.ranks:,} ranks, measured: {format_duration(time)}")
        x, y = round(across.place(row.ranks), 1), round(up.place(time), 1)
        shapes.add(element("circle", told, cx=x, cy=y, r=5, fill="none", stroke=_HELD, stroke_width=1.5))
    size = f"0 0 {_WIDTH:g} {_HEIGHT + 30:g}"
    look = "font-family:system-ui,sans-serif;background:#fff"
    return element("svg", "".join(shapes.parts), xmlns="http://www.w3.org/2000/svg", viewBox=size, style=look)


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


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
