"""The top of the page of a run: what happened fits on one screen, equal steps share a line, phones clip nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.record.read import Record
from tests.browser.axe import violations
from tests.browser.runs import failed, training
from tests.traces import TraceMaker

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Eight equal reductions, then a barrier."""
    maker = TraceMaker(tmp_path_factory.mktemp("repeated") / "run", 2)
    for rank in (0, 1):
        for number in range(8):
            maker.call(rank, "all_reduce", 10 * number, 10 * number + 5, [[1.0]], [[2.0]], red="SUM", at="train.py:10")
        maker.call(rank, "barrier", 90, 95, at="train.py:11")
    return maker.record()


def test_equal_steps_share_a_line_until_each_is_wanted(open_report: Open, repeated: Record) -> None:
    page = open_report(repeated)
    rows = page.locator("#steps [role=option]")
    expect(rows.locator(".title")).to_have_text(["8 × all_reduce", "barrier #9"])
    page.keyboard.press("ArrowRight")
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")
    expect(page.locator("#steps [aria-selected=true]")).to_contain_text("step 2 chosen")
    page.get_by_label("each step").check()
    expect(rows).to_have_count(9)
    expect(page.locator("#steps [aria-selected=true]")).to_contain_text("all_reduce #2")


def test_verdict_and_picture_fit_on_one_screen_and_the_rest_is_folded(open_report: Open, tmp_path: Path) -> None:
    page = open_report(training(tmp_path / "run"), folded=True)
    drawing = page.locator("#step .drawing").bounding_box()
    assert drawing is not None
    assert drawing["y"] + drawing["height"] < 900
    assert page.evaluate("document.documentElement.scrollHeight") < 2000
    expect(page.locator("#source-title, #traffic .matrix, #time-ranks").first).to_be_hidden()
    assert violations(page) == []
    page.get_by_role("navigation").get_by_role("link", name="Traffic").click()
    expect(page.locator("#traffic .matrix")).to_be_visible()


def test_on_a_phone_menu_captions_and_tables_are_not_clipped(open_report: Open, tmp_path: Path) -> None:
    page = open_report(failed(tmp_path / "run"), width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    clipped = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.ariaLabel)"
    assert page.locator("nav, .drawing, .scroll:not(:has(.code))").evaluate_all(clipped) == []
    expect(page.locator("#step p.caption")).to_contain_text("Every rank gets the sum")
