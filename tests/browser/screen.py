"""Where things are on the page, for a pointer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from playwright.sync_api import Page

_TICKS_PX = 8
_ROW_PX = 20


def domain(page: Page) -> tuple[float, float]:
    """The milliseconds that the timeline shows."""
    begin, end = page.locator("#canvas").get_attribute("data-domain").split()
    return float(begin) / 1e3, float(end) / 1e3


def bar(page: Page, rank: int, at_ms: float) -> tuple[float, float]:
    """The point in the lane of a rank (one row of bars) at a time, in the window's pixels."""
    return bars(page, rank, [at_ms])[0]


def bars(page: Page, rank: int, times_ms: Iterable[float]) -> list[tuple[float, float]]:
    """The same for several times."""
    page.locator("#canvas").scroll_into_view_if_needed()
    canvas = page.locator("#canvas").bounding_box()
    lane = page.locator(f"#lanes [data-rank='{rank}']").bounding_box()
    begin, end = domain(page)
    y = lane["y"] + lane["height"] - _TICKS_PX - _ROW_PX / 2
    return [(canvas["x"] + (at_ms - begin) / (end - begin) * canvas["width"], y) for at_ms in times_ms]


def colours(page: Page, rank: int, times_ms: Iterable[float], off_px: float = 0) -> list[tuple[int, int, int]]:
    """The colours that the canvas has in the lane of a rank at these times, or so many pixels below."""
    return pixels(page, [(x, y + off_px) for x, y in bars(page, rank, times_ms)])


def pixels(page: Page, points: Sequence[tuple[float, float]]) -> list[tuple[int, int, int]]:
    """The colours that the canvas has at points of the window."""
    script = """(points) => {
        const canvas = document.getElementById("canvas"), area = canvas.getBoundingClientRect();
        const ratio = canvas.width / area.width, context = canvas.getContext("2d");
        return points.map(([x, y]) => {
            const at = [(x - area.left) * ratio, (y - area.top) * ratio].map(Math.round);
            return [...context.getImageData(at[0], at[1], 1, 1).data];
        });
    }"""
    return [tuple(colour[:3]) for colour in page.evaluate(script, points)]
