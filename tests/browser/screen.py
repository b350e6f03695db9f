"""Where things are on the page, for a pointer."""

from __future__ import annotations

from playwright.sync_api import Page

_TICKS_PX = 8
_ROW_PX = 20


def domain(page: Page) -> tuple[float, float]:
    """The milliseconds that the timeline shows."""
    begin, end = page.locator("#canvas").get_attribute("data-domain").split()
    return float(begin) / 1e3, float(end) / 1e3


def bar(page: Page, rank: int, at_ms: float) -> tuple[float, float]:
    """The point in the lane of a rank (one row of bars) at a time, in the window's pixels."""
    page.locator("#canvas").scroll_into_view_if_needed()
    canvas = page.locator("#canvas").bounding_box()
    lane = page.locator(f"#lanes [data-rank='{rank}']").bounding_box()
    begin, end = domain(page)
    x = canvas["x"] + (at_ms - begin) / (end - begin) * canvas["width"]
    return x, lane["y"] + lane["height"] - _TICKS_PX - _ROW_PX / 2


def colour(page: Page, rank: int, at_ms: float, off_px: float = 0) -> tuple[int, int, int]:
    """The colour that the canvas has there, or so many pixels below."""
    x, y = bar(page, rank, at_ms)
    y += off_px
    script = """([x, y]) => {
        const canvas = document.getElementById("canvas"), area = canvas.getBoundingClientRect();
        const ratio = canvas.width / area.width;
        const at = [(x - area.left) * ratio, (y - area.top) * ratio].map(Math.round);
        return [...canvas.getContext("2d").getImageData(at[0], at[1], 1, 1).data];
    }"""
    return tuple(page.evaluate(script, [x, y])[:3])
