"""What a network did to runs: all_reduces against the alpha-beta model that fits them, times of steps, overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lab.features.network_model.model import Model, Pace
from lab.features.timeline.svg import LogScale, Shapes, element, text, title
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import NONE, format_bytes, format_duration, format_rate

_FORMULA = "T(S) = 2 (n-1) α + 2 (n-1)/n S/B, of n ranks and tensors of S bytes; busbw as nccl-tests defines it"
_COLOURS = ("#4474b0", "#d9822b", "#2a8a4a", "#8560b8", "#d1343c", "#2b9aa0", "#a86a0c", "#7a818b")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 760.0, 300.0, 92.0, 180.0, 30.0
_ROW = 22.0
Paces = Mapping[str, Pace]
"""By name of the run."""


def network_json(paces: Paces) -> list[dict[str, Any]]:
    """The figures as plain data."""
    return [{"run": run, **asdict(pace), "bounds_s": pace.bounds_s} for run, pace in paces.items()]


def network_text(paces: Paces, style: Style) -> str:
    """A table of the runs, and for each its all_reduces beside what the model says."""
    parts = [_overview(paces, style)]
    for run, pace in paces.items():
        parts += [_sizes(run, model, style) for model in pace.models]
        if not pace.models:
            parts.append(f"{style.paint(run, 'bold')}: no model, which takes all_reduces of two sizes, each alone")
    return "\n\n".join([*parts, style.paint(_FORMULA, "dim")])


def _overview(paces: Paces, style: Style) -> str:
    header = ["run", "α", "B", "error", "worst", "step", "model of it", "overlap", "busbw"]
    rows = []
    for run, pace in paces.items():
        model = pace.models[-1] if pace.models else None
        bounds = pace.bounds_s
        between = f"{format_duration(bounds[0])} to {format_duration(bounds[1])}" if bounds else NONE
        told = [format_duration(model.alpha_s), format_rate(model.bandwidth)] if model else [NONE, NONE]
        errors = [_percent(model.error), _percent(model.worst)] if model else [NONE, NONE]
        busbw = format_rate(model.timings[-1].busbw) if model else NONE
        rows.append([run, *told, *errors, format_duration(pace.step_s), between, _percent(pace.overlap), busbw])
    return table_text(header, rows, style)


def _sizes(run: str, model: Model, style: Style) -> str:
    rows = []
    for one in model.timings:
        off = f"{100 * (model.seconds(one.bytes) / one.seconds - 1):+.1f} %"
        times = [format_duration(one.seconds), format_duration(model.seconds(one.bytes)), off]
        rates = [format_rate(one.busbw), format_rate(model.busbw(one.bytes))]
        rows.append([format_bytes(one.bytes), str(one.count), *times, *rates])
    header = ["all_reduce", "count", "measured", "model", "off", "busbw", "model"]
    return f"{style.paint(run, 'bold')}, {model.ranks} ranks\n{table_text(header, rows, style)}"


def _percent(part: float | None) -> str:
    return NONE if part is None else f"{100 * part:.1f} %"


def network_svg(paces: Paces) -> str:
    """Bus bandwidth by size, measured (dots) and modelled (lines), then step time and overlap of each run."""
    shapes = Shapes()
    models = [(run, pace.models[-1]) for run, pace in paces.items() if pace.models]
    bottom = _TOP
    if models:
        _busbw(shapes, models)
        bottom = _HEIGHT + 50
    timed = {run: pace for run, pace in paces.items() if pace.step_s is not None}
    if timed:
        bottom = _steps(shapes, timed, bottom + 24)
    size = f"0 0 {_WIDTH:g} {bottom + 10:g}"
    style = "font-family:system-ui,sans-serif;background:#fff"
    return element("svg", "".join(shapes.parts), xmlns="http://www.w3.org/2000/svg", viewBox=size, style=style)


def _busbw(shapes: Shapes, models: Sequence[tuple[str, Model]]) -> None:
    sizes = [one.bytes for _, model in models for one in model.timings]
    rates = [rate for _, model in models for one in model.timings for rate in (one.busbw, model.busbw(one.bytes))]
    across = LogScale(min(sizes), max(sizes), _LEFT, _WIDTH - _RIGHT)
    up = LogScale(min(rates), max(rates), _HEIGHT, _TOP)
    text(shapes, _LEFT, 16, "bus bandwidth by size of the tensor: measured (dots) and the model (lines)", size=13)
    for size in across.ticks():
        place = across.place(size)
        shapes.add(element("path", d=f"M{place:g} {_TOP:g}V{_HEIGHT:g}", stroke="#ddd"))
        text(shapes, place, _HEIGHT + 18, format_bytes(size), size=11, text_anchor="middle")
    for rate in up.ticks():
        place = up.place(rate)
        shapes.add(element("path", d=f"M{_LEFT:g} {place:g}H{_WIDTH - _RIGHT:g}", stroke="#ddd"))
        text(shapes, 6, place + 4, format_rate(rate), size=11)
    for number, (run, model) in enumerate(models):
        colour = _COLOURS[number % len(_COLOURS)]
        first, last = model.timings[0].bytes, model.timings[-1].bytes
        curve = [first * (last / first) ** (step / 40) for step in range(41)]
        points = " ".join(f"{across.place(size):.1f},{up.place(model.busbw(size)):.1f}" for size in curve)
        shapes.add(element("polyline", points=points, fill="none", stroke=colour, stroke_width=1.5))
        for one in model.timings:
            told = title(
                f"{run}: {format_bytes(one.bytes)} in {format_duration(one.seconds)}, {format_rate(one.busbw)}"
            )
            x, y = across.place(one.bytes), up.place(one.busbw)
            shapes.add(element("circle", told, cx=x, cy=y, r=3.5, fill=colour))
        error = f", error {_percent(model.error)}" if model.error is not None else ""
        text(shapes, _WIDTH - _RIGHT + 10, _TOP + 12 + 30 * number, _short(run), size=11, colour=colour)
        text(shapes, _WIDTH - _RIGHT + 10, _TOP + 25 + 30 * number, f"B {format_rate(model.bandwidth)}{error}", size=10)


def _steps(shapes: Shapes, paces: Paces, top: float) -> float:
    text(shapes, _LEFT, top - 8, "time of a step (bar) and where the model has it (bracket); overlap", size=13)
    longest = max(max(pace.step_s or 0.0, *(pace.bounds_s or (0.0,))) for pace in paces.values())
    left, width = _LEFT + 60, _WIDTH - _RIGHT - _LEFT - 60
    for number, (run, pace) in enumerate(paces.items()):
        y, colour = top + number * _ROW, _COLOURS[number % len(_COLOURS)]
        step = pace.step_s or 0.0
        text(shapes, 6, y + 13, _short(run), size=11)
        shapes.add(
            element("rect", x=left, y=y, width=width * step / longest, height=_ROW - 8, fill=colour, opacity=0.6)
        )
        if pace.bounds_s is not None:
            low, high = (left + width * bound / longest for bound in pace.bounds_s)
            shapes.add(
                element(
                    "path",
                    d=f"M{low:g} {y - 2:g}v{_ROW - 4:g}M{low:g} {y + 7:g}H{high:g}M{high:g} {y - 2:g}v{_ROW - 4:g}",
                    stroke="#222",
                )
            )
        told = f"{format_duration(pace.step_s)}, overlap {_percent(pace.overlap)}"
        text(shapes, _WIDTH - _RIGHT + 10, y + 13, told, size=11)
    return top + len(paces) * _ROW


def _short(run: str) -> str:
    """The name of a run without the time at its beginning."""
    head, _, rest = run.partition("-")
    return (rest.partition("-")[2] or rest) if head.isdecimal() and rest else run
