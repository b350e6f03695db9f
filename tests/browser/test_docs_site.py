"""The site of the docs can be used by everybody: axe-core finds nothing wrong with its pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.axe import violations
from tests.site import site

__all__ = ["site"]
pytestmark = pytest.mark.xdist_group("site")
DAILY = ("index.html", "ci.html", "lesson/scatter.html")
"""Together they have everything that a page can have: pictures, tables, and code."""


def refused(page: Page) -> list[str]:
    """What axe-core finds wrong with a page, in light, dark, and on a phone."""
    page.add_style_tag(content="* { transition: none !important; }")  # colors on the way are no colors to judge
    found = violations(page)
    page.emulate_media(color_scheme="dark")
    found += violations(page, "color-contrast")
    page.set_viewport_size({"width": 390, "height": 844})
    return found + violations(page)


@pytest.mark.sample(1)  # all pages have one theme
@pytest.mark.parametrize("name", DAILY)
def test_axe_finds_nothing_wrong_with_the_docs(open_page: Callable[..., Page], site: Path, name: str) -> None:
    assert refused(open_page(site / name)) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_axe_finds_nothing_wrong_with_any_page_of_the_docs(open_page: Callable[..., Page], site: Path) -> None:
    wrong, page = {}, open_page(site / "index.html")
    for file in sorted(site.rglob("*.html")):
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]")
        if found := refused(page):
            wrong[str(file.relative_to(site))] = found
    assert wrong == {}
