"""The timeline of many ranks: those that are alike share a lane, which can be opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.features.compare.page import write_diff
from lab.record.read import Record
from tests.browser.axe import violations
from tests.browser.runs import crowd
from tests.browser.screen import bar, colours, pixels

Open = Callable[..., Page]
ALL_REDUCE = (0x45, 0x59, 0x7B)
INK = (0x1B, 0x1D, 0x21)
"""On a light page."""
NAMES = "#lanes li:visible"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return crowd(tmp_path_factory.mktemp("crowded") / "run")


@pytest.fixture
def page(open_report: Open, crowded: Record) -> Page:
    return open_report(crowded, color_scheme="light")


def test_ranks_that_are_alike_share_a_lane_and_a_culprit_has_its_own(page: Page):
    expect(page.locator(NAMES)).to_have_text(["0-6, 8-29, 31-39", "rank 7node7", "rank 30node30"])
    assert ALL_REDUCE in colours(page, 7, [22, 25, 28])
    page.mouse.move(*bar(page, 7, 25))
    expect(page.get_by_role("tooltip")).to_contain_text("rank 7")


def test_the_lane_that_ranks_share_tells_who_was_in_a_call_and_when(page: Page):
    page.mouse.move(*shared(page, 10))
    tip = page.get_by_role("tooltip")
    expect(tip).to_contain_text("waited 20 ms for rank 7")
    expect(tip).to_contain_text("so did ranks 1-6, 8-29, and 31-39, between 0 s and 30 ms")
    page.mouse.move(*shared(page, 63.5, ticks=True))
    expect(tip).to_contain_text("rank 35")


def test_a_lane_is_opened_to_single_ranks_and_closed_again(page: Page):
    head, canvas = page.locator("#lanes button"), page.locator("#canvas")
    closed, domain = canvas.bounding_box()["height"], canvas.get_attribute("data-domain")
    head.click()
    expect(page.locator(NAMES)).to_have_count(41)
    expect(head).to_have_attribute("aria-expanded", "true")
    assert canvas.bounding_box()["height"] > 5 * closed
    page.mouse.move(*middle(page, 4, 15))
    expect(page.get_by_role("tooltip")).to_contain_text("rank 4 ")
    assert violations(page) == []
    head.press("Enter")
    expect(page.locator(NAMES)).to_have_count(3)
    expect(head).to_have_attribute("aria-expanded", "false")
    assert canvas.bounding_box()["height"] == closed
    expect(canvas).to_have_attribute("data-domain", domain)


def test_a_step_of_others_than_the_first_is_framed_in_their_common_lane(page: Page):
    page.locator("#step-rank").select_option("5")
    page.locator("#steps [role=option]").last.click()
    page.locator("#step-rank").select_option("")
    page.mouse.move(0, 0)
    x, y = shared(page, 93.5)
    expect(page.locator("#canvas")).not_to_have_attribute("data-step", "0")
    assert INK in column(page, x, y - 24, y + 12)
    assert INK not in column(page, shared(page, 88)[0], y - 24, y + 12)


def test_what_a_fault_did_to_some_ranks_of_a_lane_is_at_its_bottom_only(page: Page):
    x, ticks = shared(page, 96.5, ticks=True)
    before, _ = shared(page, 90.5)
    assert column(page, x, ticks - 20, ticks - 19) == column(page, before, ticks - 20, ticks - 19)
    assert column(page, x, ticks, ticks + 1) != column(page, before, ticks, ticks + 1)


def test_two_runs_of_many_ranks_have_the_same_lanes(open_page: Open, crowded: Record, tmp_path: Path):
    page = open_page(write_diff(crowded, crowded, tmp_path / "diff.html").path)
    for run in (0, 1):
        expect(page.locator(f"#lanes-{run} li:visible")).to_have_count(3)
    page.locator("#lanes-1 button").click()
    expect(page.locator("#lanes-1 li:visible")).to_have_count(41)
    expect(page.locator("#lanes-0 li:visible")).to_have_count(3)


def shared(page: Page, at_ms: float, *, ticks: bool = False) -> tuple[float, float]:
    """The point in the lane of several ranks at a time: on its bars, or on the ticks below them."""
    x, _ = bar(page, 7, at_ms)
    lane = page.locator("#lanes [data-first]").bounding_box()
    return x, lane["y"] + lane["height"] - (3 if ticks else 15)


def column(page: Page, x: float, top: float, bottom: float) -> list[tuple[int, int, int]]:
    """The colours from one pixel to another one below it."""
    return pixels(page, [(x, top + down) for down in range(round(bottom - top))])


def middle(page: Page, rank: int, at_ms: float) -> tuple[float, float]:
    """The point in the middle of a rank's lane at a time."""
    x, _ = bar(page, rank, at_ms)
    lane = page.locator(f"#lanes [data-rank='{rank}']").bounding_box()
    return x, lane["y"] + lane["height"] / 2 - 2
