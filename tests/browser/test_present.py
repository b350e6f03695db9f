"""Presentation: one picture per screen that the back row can read, with motion between before and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.record.read import Record
from tests.browser.axe import violations
from tests.browser.runs import result, training
from tests.traces import TraceMaker

Open = Callable[..., Page]
PROJECTOR = {"width": 1920, "height": 1080}
LEAST_PX = 24
MOST_LINES = 24
SMALL_TEXTS = """least => [...document.querySelectorAll("#show :is(h2, p, button, kbd, text)")]
  .filter(one => one.checkVisibility() && one.textContent.trim())
  .map(one => {
    const scale = one.ownerSVGElement ? one.getScreenCTM().a : 1;
    return [one.textContent, parseFloat(getComputedStyle(one).fontSize) * scale];
  })
  .filter(([, size]) => size < least)"""


def sixteen(folder: Path) -> Record:
    """Sixteen ranks that reduce, then send a different number to each other rank, and meet at a barrier."""
    maker, ranks = TraceMaker(folder, 16), range(16)
    for rank in ranks:
        maker.call(rank, "all_reduce", 10, 20, [[1.0, float(rank)]], [[16.0, 120.0]], red="SUM", at="train.py:10")
        sent, received = [10.0 * rank + to for to in ranks], [10.0 * source + rank for source in ranks]
        maker.call(rank, "all_to_all_single", 30, 40, [sent], [received], at="train.py:11")
        maker.call(rank, "barrier", 50 + rank, 70, at="train.py:12")
    return maker.record(result=result(maker))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return sixteen(tmp_path_factory.mktemp("sixteen") / "run")


def test_p_opens_and_arrows_go_through_both_sides_of_each_picture(open_report: Open, tmp_path: Path) -> None:
    page = open_report(training(tmp_path / "run"), **PROJECTOR)
    show, title, position = page.locator("#show"), page.locator("#show h2"), page.locator(".show-position")
    expect(show).to_be_hidden()
    page.keyboard.press("p")
    expect(title).to_have_text("all_reduce #1")
    expect(position).to_have_text("1 of 4 · before")
    expect(page.locator(".show-place")).to_contain_text("dist.all_reduce(torch.ones(2))")
    page.keyboard.press("ArrowRight")
    expect(position).to_have_text("1 of 4 · after")
    expect(page.locator(".show-stage")).to_have_attribute("data-side", "after")
    page.keyboard.press("PageDown")
    expect(position).to_have_text("2 of 4 · before")
    page.keyboard.press("PageUp")
    expect(position).to_have_text("1 of 4 · after")
    page.locator("#show-next").click()
    expect(title).to_have_text("all_reduce #2")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(show).to_be_hidden()
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")


def test_the_sentence_about_ranks_that_disagree_is_shown_to_its_end(open_report: Open, tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 3)
    maker.call(0, "reduce", 10, None, [[4.133]], red="SUM", root=0, at="train.py:18")
    for rank in (1, 2):
        maker.call(rank, "all_reduce", 10, None, [[0.5, 0.25]], red="SUM", at="train.py:15")
    page = open_report(maker.record(result=result(maker)), **PROJECTOR)
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    told = page.locator(".show-told")
    expect(told).to_contain_text("rank 0 reduce; ranks 1 and 2 all_reduce")
    assert told.evaluate("one => one.scrollHeight <= one.clientHeight + 1")


def test_chunks_move_unless_the_reader_wants_no_motion(open_report: Open, tmp_path: Path) -> None:
    page = open_report(training(tmp_path / "run"), **PROJECTOR)
    page.locator("#present").click()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".show-stage .chips rect")).to_have_count(4)
    expect(page.locator(".show-stage .chips")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    page.emulate_media(reduced_motion="reduce")
    page.keyboard.press("ArrowRight")
    assert page.locator(".chips").count() == 0
    expect(page.locator(".show-stage")).to_have_attribute("data-side", "after")
    page.emulate_media(reduced_motion="null")


def test_an_arrow_begins_at_its_cell_and_has_the_color_of_the_chunk(open_report: Open, tmp_path: Path) -> None:
    page = open_report(training(tmp_path / "run"), **PROJECTOR)
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".show-stage")).to_have_attribute("data-side", "after")
    starts = page.locator(".flow path:not(.halo)").evaluate_all(
        "all => all.map(one => [one.getPointAtLength(0).x, getComputedStyle(one).stroke])"
    )
    cells = page.locator(".cell.before rect[stroke]").evaluate_all(
        "all => all.map(one => [one.getBBox().x + one.getBBox().width, getComputedStyle(one).stroke])"
    )
    assert len(starts) == 4
    assert {(round(x), colour) for x, colour in starts} == {(round(x), colour) for x, colour in cells}


def test_all_labels_can_be_read_from_the_back_row_and_few_lines_are_drawn(open_report: Open, many: Record) -> None:
    page = open_report(many, **PROJECTOR)
    page.keyboard.press("p")
    for title in ("all_reduce #1", "all_to_all_single #2", "barrier #3"):
        expect(page.locator("#show h2")).to_have_text(title)
        assert page.evaluate(SMALL_TEXTS, LEAST_PX) == []
        if title != "barrier #3":
            page.keyboard.press("ArrowRight")
            expect(page.locator(".show-stage")).to_have_attribute("data-side", "after")
            assert page.evaluate(SMALL_TEXTS, LEAST_PX) == []
            assert 0 < page.locator(".flow").count() <= MOST_LINES
        if title == "all_to_all_single #2":
            expect(page.locator(".show-told")).to_contain_text("what rank 0 sends")
            page.keyboard.press("ArrowDown")
            expect(page.locator(".show-told")).to_contain_text("what rank 1 sends")
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize(
    ("color_scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))], ids=["light", "dark"]
)
def test_axe_finds_nothing_wrong_with_a_presentation(
    open_report: Open, many: Record, color_scheme: str, rules: tuple[str, ...]
) -> None:
    page = open_report(many, width=1280, height=720, color_scheme=color_scheme)
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".show-stage")).to_have_attribute("data-side", "after")
    assert violations(page, *rules) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert violations(page, *rules) == []
