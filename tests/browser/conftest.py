"""A real Chromium for the HTML report. Without one the tests are skipped; `dev/browser` installs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lab.features.html.page import write_report
from lab.record.read import Record

PATIENCE_MS = 60_000
"""The machine may be slow and shared."""


@pytest.fixture(scope="session")
def chromium() -> Generator[Browser]:
    """The browser, without a window."""
    names = (os.environ.get("LAB_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if name and (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium; install it, as root with dev/browser, or name it in LAB_CHROMIUM")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=sandbox, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def reports() -> Callable[[Record], Path]:
    """Writes the report of a record beside it, where there is none yet."""

    def of(record: Record) -> Path:
        page = record.path / "report.html"
        return page if page.exists() else write_report(record, page).path

    return of


Kept = dict[tuple[int, int, str], Page]


@pytest.fixture(scope="session")
def kept_pages(chromium: Browser) -> Kept:
    """Empty pages that tests left, by width, height, and colour scheme; a new one costs a process of the browser."""
    return {}


@pytest.fixture
def open_page(chromium: Browser, kept_pages: Kept) -> Generator[Callable[..., Page]]:
    """Opens a page from disk, `at` a place of it; whatever it logs as an error fails the test.

    Folded sections are unfolded, unless the page is to stay `folded`.

    `page.asked` holds every address that the page asked for besides its own.
    """
    opened: list[tuple[tuple[int, int, str] | None, Page]] = []
    wrong: list[str] = []

    def open_one(
        path: Path,
        *,
        at: str = "",
        width: int = 1280,
        height: int = 900,
        color_scheme: str = "light",
        folded: bool = False,
        **options: Any,
    ) -> Page:
        key = None if options else (width, height, color_scheme)
        page = kept_pages.pop(key, None) if key else None
        if page is None:
            context = chromium.new_context(
                viewport={"width": width, "height": height}, color_scheme=color_scheme, **options
            )
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.on("pageerror", lambda error: page.wrong.append(str(error)))
            page.on("console", lambda message: page.wrong.append(message.text) if message.type == "error" else None)
            page.on("request", lambda request: page.asked.append(request.url))
        opened.append((key, page))
        page.asked, page.wrong = [], wrong
        page.goto(path.as_uri() + at)
        page.wait_for_selector("html[data-ready]")
        if not folded:
            page.evaluate("document.querySelectorAll('details.fold').forEach(one => { one.open = true })")
        return page

    yield open_one
    for key, page in opened:
        if key is None or key in kept_pages or wrong:
            page.context.close()
        else:
            make_as_new(page, *key)
            kept_pages[key] = page
    assert wrong == []


def make_as_new(page: Page, width: int, height: int, color_scheme: str) -> None:
    """Take back what a test may have done to a page, and leave it empty."""
    page.evaluate("localStorage.clear()")
    page.goto("about:blank")
    page.emulate_media(media="null", color_scheme=color_scheme)
    page.set_viewport_size({"width": width, "height": height})
    page.mouse.move(0, 0)


@pytest.fixture
def open_report(open_page: Callable[..., Page], reports: Callable[[Record], Path]) -> Callable[..., Page]:
    """Opens the report of a record, as `open_page` does."""

    def opened(record: Record, **options: Any) -> Page:
        page = open_page(reports(record), **options)
        page.wait_for_selector("#canvas[data-domain]")
        return page

    return opened
