"""The HTML report as people see it: in Chromium, from disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.record.read import Record
from tests.browser.runs import hostile, long_training, never_entered, training
from tests.browser.screen import bar, colours, domain

Open = Callable[..., Page]
ALL_REDUCE = (0x45, 0x59, 0x7B)
"""On a light page."""
ABOVE_THE_LABEL_PX = -7


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A small training run."""
    return training(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def page(open_report: Open, trained: Record) -> Page:
    """Its report, on a wide screen, light."""
    return open_report(trained, color_scheme="light")


def test_the_verdict_comes_first_and_says_why(page: Page):
    head = page.locator("main > section").first
    expect(head.locator("h1")).to_have_text(re.compile("✔ *passed"))
    expect(head.locator(".reason")).to_have_text("all ranks ended as expected")
    expect(head).to_be_in_viewport()


def test_nothing_is_asked_of_any_network(page: Page):
    assert [address for address in page.asked if not address.startswith(("file:", "data:"))] == []


def test_every_rank_has_a_lane(page: Page):
    lanes = page.locator("#lanes li")
    expect(lanes).to_have_count(2)
    expect(lanes.nth(1)).to_contain_text("rank 1")
    expect(lanes.nth(1)).to_contain_text("node1")


def test_a_bar_has_the_colour_of_its_operation_and_its_waiting_part_is_hatched(page: Page):
    page.keyboard.press("Escape")
    expect(page.locator("#canvas")).to_have_attribute("data-step", "0")
    hatched = set(colours(page, 0, [11 + number / 10 for number in range(60)], ABOVE_THE_LABEL_PX))
    communicating = set(colours(page, 1, [19 + number / 10 for number in range(50)], ABOVE_THE_LABEL_PX))
    assert communicating == {ALL_REDUCE}
    assert ALL_REDUCE in hatched
    assert len(hatched) > 1


def test_the_pointer_on_a_bar_tells_operation_line_and_who_was_waited_for(page: Page):
    page.mouse.move(*bar(page, 0, 38))
    tip = page.get_by_role("tooltip")
    expect(tip).to_contain_text("all_reduce #2")
    expect(tip).to_contain_text("train.py:10")
    expect(tip).to_contain_text("waited 8 ms for rank 1")


def test_the_pointer_between_bars_tells_the_phase(page: Page):
    page.mouse.move(*bar(page, 0, 8))
    expect(page.get_by_role("tooltip")).to_contain_text("backward")


def test_a_click_on_a_bar_chooses_the_step_everywhere(page: Page):
    page.mouse.click(*bar(page, 1, 73))
    expect(page.locator("#step h3")).to_have_text("all_reduce #3")
    expect(page.locator("#step .drawing")).to_have_attribute("data-step", "3")
    expect(page.locator("#step .drawing svg")).to_be_visible()
    expect(page.locator("#steps [aria-selected=true]")).to_contain_text("all_reduce #3")
    assert page.locator("#slider").input_value() == "3"
    expect(page.locator("#step")).to_contain_text("Rank 0 waited 8 ms for rank 1")


def test_a_click_in_the_list_chooses_the_step(page: Page):
    page.locator("#steps [data-step='4']").click()
    expect(page.locator("#step h3")).to_have_text("barrier #4")


def test_arrows_step_and_escape_ends_the_choice(page: Page):
    expect(page.locator("#step h3")).to_have_text("all_reduce #1")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")
    page.keyboard.press("Escape")
    expect(page.locator("#steps [aria-selected=true]")).to_have_count(0)


def test_keys_zoom_and_show_all_again(page: Page):
    whole = domain(page)
    page.locator("#canvas").focus()
    page.keyboard.press("+")
    expect(page.locator("#canvas")).not_to_have_attribute("data-domain", _words(whole))
    begin, end = domain(page)
    assert end - begin < whole[1] - whole[0]
    page.keyboard.press("0")
    expect(page.locator("#canvas")).to_have_attribute("data-domain", _words(whole))


def test_the_wheel_zooms_where_the_pointer_is(page: Page):
    whole = domain(page)
    page.mouse.move(*bar(page, 0, 38))
    page.mouse.wheel(0, -300)
    expect(page.locator("#canvas")).not_to_have_attribute("data-domain", _words(whole))
    begin, end = domain(page)
    assert end - begin < whole[1] - whole[0]
    assert begin < 38 < end


def test_the_line_of_a_step_leads_to_the_source(page: Page):
    page.locator("#step .summary a").click()
    line = page.locator(":target")
    expect(line).to_be_in_viewport()
    expect(line).to_contain_text("dist.all_reduce(torch.ones(2))")


def test_tab_reaches_every_control_and_shows_where_it_is(page: Page):
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"theme", "previous", "slider", "next", "steps", "zoom-in", "canvas", "log-search", "log"} <= reached
    page.locator("#zoom-in").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_logs_are_filtered_by_words_rank_and_stream(page: Page):
    shown = page.locator("#log li:visible")
    expect(shown).to_have_count(4)
    page.locator("#log-search").fill("LOSS")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("loss is 0.25")
    expect(page.locator("#log-count")).to_have_text("1 of 4 lines")
    page.locator("#log-search").fill("")
    page.locator("#log-rank").select_option("1")
    expect(shown).to_have_count(3)
    page.locator("#log-stream").select_option("2")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("a warning")


def test_a_head_sorts_its_column(page: Page):
    first = page.locator("#operations tbody th").first
    page.locator("#operations thead button", has_text="operation").click()
    expect(first).to_have_text("all_reduce")
    page.locator("#operations thead button", has_text="operation").click()
    expect(first).to_have_text("barrier")
    page.locator("#operations thead button", has_text="count").click()
    expect(first).to_have_text("all_reduce")
    expect(page.locator("#operations [aria-sort]")).to_have_attribute("aria-sort", "descending")


def test_the_matrix_says_who_sent_how_much(page: Page):
    cells = page.locator(".matrix tbody tr").nth(0).locator("td")
    expect(cells.nth(1)).to_have_text("24 B")
    expect(cells.nth(0)).to_have_text("·")


def test_dark_is_dark_by_the_system_and_by_the_button(open_report: Open, trained: Record):
    dark = open_report(trained, color_scheme="dark")
    assert _lightness(dark) < 60
    dark.locator("#theme").click()
    assert _lightness(dark) > 200
    light = open_report(trained, color_scheme="light")
    assert _lightness(light) > 200
    [before] = colours(light, 0, [84])
    light.locator("#theme").click()
    assert _lightness(light) < 60
    light.keyboard.press("Escape")
    expect(light.locator("#canvas")).to_have_attribute("data-step", "0")
    [after] = colours(light, 0, [84])
    assert max(after) < min(before)


def test_on_paper_it_is_light_and_without_buttons(open_report: Open, trained: Record):
    page = open_report(trained, color_scheme="dark")
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.keyboard.press("Escape")
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator("#zoom-in")).to_be_hidden()
    expect(page.locator("#canvas")).to_have_attribute("data-step", "0")
    assert _lightness(page) > 200
    [lane] = colours(page, 0, [84])
    assert min(lane) > 180


@pytest.mark.parametrize("width", [360, 768])
def test_a_small_screen_needs_no_sideways_scrolling(open_report: Open, trained: Record, width: int):
    page = open_report(trained, width=width, height=740)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    expect(page.locator("#step h3")).to_be_visible()
    expect(page.locator("#canvas")).to_be_visible()


def test_a_run_that_was_cut_short_says_what_is_missing(open_report: Open, tmp_path: Path):
    page = open_report(never_entered(tmp_path / "run"))
    expect(page.locator("h1")).to_contain_text("error")
    expect(page.locator(".problems")).to_contain_text("the record ends before a result")
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")
    expect(page.locator("#step .waiting")).to_have_text("Rank 1 never entered, so no rank could finish.")
    page.mouse.move(*bar(page, 0, 1000))
    expect(page.get_by_role("tooltip")).to_contain_text("waited for rank 1, which never entered")


@pytest.mark.parametrize(
    "attack",
    [
        "</script><script>window.hurt = 1</script>",
        "<img src=x onerror='window.hurt = 1'>",
        "</style><svg onload=window.hurt=1> {{ 7 * 7 }} &amp; '\"",
    ],
)
def test_what_people_print_stays_text(open_report: Open, tmp_path: Path, attack: str):
    page = open_report(hostile(tmp_path / "run", attack))
    for row in page.locator("#log li").all():
        assert row.locator("span").text_content() == attack
    expect(page.locator(".reason")).to_have_text(attack)
    page.locator("#step h3").click()
    page.mouse.move(*bar(page, 0, 15))
    expect(page.get_by_role("tooltip")).to_contain_text(attack)
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0


def test_a_run_without_a_trace_still_has_verdict_lanes_and_logs(open_report: Open, tmp_path: Path):
    record = training(tmp_path / "run")
    for path in (record.path / "trace").iterdir():
        path.unlink()
    page = open_report(record)
    expect(page.locator("#verdict")).to_contain_text("no trace of collectives")
    expect(page.locator("#lanes li")).to_have_count(2)
    expect(page.locator("#log li")).to_have_count(4)
    expect(page.locator("#movement")).to_have_count(0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("calls", [4_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_calls_can_be_zoomed_and_stepped_through(open_report: Open, tmp_path: Path, calls: int):
    page = open_report(long_training(tmp_path / "run", calls))
    whole, steps = domain(page), calls // 4
    expect(page.locator("#position")).to_have_text(f"1 of {steps:,}")
    assert page.locator("#steps [role=option]").count() < 60
    for _ in range(4):
        page.locator("#zoom-in").click()
    expect(page.locator("#canvas")).not_to_have_attribute("data-domain", _words(whole))
    begin, end = domain(page)
    assert end - begin < (whole[1] - whole[0]) / 2
    page.locator("#steps").focus()
    page.keyboard.press("End")
    expect(page.locator("#step h3")).to_have_text(f"all_reduce #{steps}")
    expect(page.locator(f"#steps [data-step='{steps}']")).to_be_visible()
    page.locator("#zoom-step").click()
    last_ms = 10 + 3 * (steps - 1)
    near = rf"{str(last_ms)[:-2]}\d{{5}}"  # microseconds
    expect(page.locator("#canvas")).to_have_attribute("data-domain", re.compile(f"^{near} {near}$"))
    page.mouse.move(*bar(page, 2, last_ms + 1.5))
    expect(page.get_by_role("tooltip")).to_contain_text(f"all_reduce #{steps}")


def _words(shown: tuple[float, float]) -> str:
    return " ".join(str(round(moment * 1e3)) for moment in shown)


def _lightness(page: Page) -> float:
    numbers = re.findall(r"[\d.]+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
    return sum(float(number) for number in numbers[:3]) / 3


def test_on_paper_all_steps_and_all_that_is_folded_are_there_in_colour(open_report: Open, tmp_path: Path):
    page = open_report(long_training(tmp_path / "run", 400, 2))
    rows, folded = page.locator("#steps [role=option]"), page.locator("details:not([open])")
    before = rows.count(), folded.count()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")

    assert (rows.count(), folded.count()) == (200, 0)
    assert page.locator("#steps").evaluate("list => list.scrollHeight <= list.clientHeight")
    swatch = page.locator(".legend .swatch").first
    assert swatch.evaluate("one => getComputedStyle(one).printColorAdjust") == "exact"

    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (rows.count(), folded.count()) == before
    assert before[0] < 200
