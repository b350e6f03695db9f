"""Finding steps on the page of a run: filter, links, and what stands in the address."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.record.read import Record
from tests.browser.runs import failed, long_training, training
from tests.traces import TraceMaker

Open = Callable[..., Page]
SIMILAR = [pytest.param(at, marks=pytest.mark.long) for at in ("#step-99", "#step-0", "#op=nothing", "#L0-3")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return training(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def page(open_report: Open, trained: Record) -> Page:
    return open_report(trained)


def shown(page: Page) -> list[int]:
    """Numbers of the steps in the list."""
    return [int(row.get_attribute("data-step")) for row in page.locator("#steps [role=option]").all()]


def test_steps_are_filtered_by_operation_line_rank_and_text_and_counted(page: Page) -> None:
    count = page.locator("#step-count")
    expect(count).to_have_text("4 steps")
    page.locator("#step-op").select_option("barrier")
    expect(count).to_have_text("1 of 4 steps")
    assert shown(page) == [4]
    page.locator("#step-op").select_option("")
    page.locator("#step-line").select_option("train.py:10")
    expect(count).to_have_text("3 of 4 steps")
    page.locator("#step-text").fill("REDUCE #2")
    expect(count).to_have_text("1 of 4 steps")
    assert shown(page) == [2]
    page.locator("#step-rank").select_option("1")
    expect(count).to_have_text("1 of 4 steps")
    page.locator("#step-all").click()
    expect(count).to_have_text("4 steps")
    assert shown(page) == [1, 2, 3, 4]


def test_where_no_step_fits_the_page_says_so(page: Page) -> None:
    page.locator("#step-text").fill("no such thing")
    expect(page.locator("#step-count")).to_have_text("0 of 4 steps")
    expect(page.locator("#no-steps")).to_be_visible()
    expect(page.locator("#steps")).to_be_hidden()


def test_keys_search_and_step_through_what_is_listed_only(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("#3")
    expect(page.locator("#step-count")).to_have_text("1 of 4 steps")
    page.keyboard.press("Tab")
    page.locator("#steps").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#step h3")).to_have_text("all_reduce #3")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#step h3")).to_have_text("all_reduce #3")
    expect(page.locator("#position")).to_have_text("1 of 1, step 3")


def test_slow_steps_took_much_longer_than_others_of_their_kind(open_report: Open, tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for number in range(6):
        for rank in (0, 1):
            maker.call(rank, "all_reduce", 50 * number, 50 * number + (30 if number == 4 else 5), [[1.0]], [[2.0]])
    page = open_report(maker.record())
    page.locator("#step-slow").check()
    expect(page.locator("#step-count")).to_have_text("1 of 6 steps")
    assert shown(page) == [5]


def test_wrong_steps_failed_or_have_a_wrong_result(open_report: Open, tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for number in range(5):
        for rank in (0, 1):
            after = 7.0 if number == 3 else 2.0
            maker.call(rank, "all_reduce", 10 * number, 10 * number + 5, [[1.0]], [[after]], red="SUM")
    page = open_report(maker.record())
    page.locator("#step-wrong").check()
    expect(page.locator("#step-count")).to_have_text("1 of 5 steps")
    assert shown(page) == [4]
    expect(page.locator("#steps [data-step='4']")).to_contain_text("wrong result")
    broken = open_report(failed(tmp_path / "failed"))
    broken.locator("#step-wrong").check()
    expect(broken.locator("#step-count")).to_have_text("1 of 2 steps")
    assert shown(broken) == [2]


def test_what_is_shown_stands_in_the_address_and_a_link_restores_it(
    open_report: Open, trained: Record, page: Page
) -> None:
    page.locator("#step-op").select_option("all_reduce")
    page.locator("#step-text").fill("train.py")
    page.locator("#steps [data-step='3']").click()
    expect(page).to_have_url(re.compile("step-3"))
    expect(page).to_have_url(re.compile("text=train.py"))
    link = page.evaluate("location.hash")
    again = open_report(trained, at=link)
    expect(again.locator("#step h3")).to_have_text("all_reduce #3")
    expect(again.locator("#step-count")).to_have_text("3 of 4 steps")
    assert again.locator("#step-text").input_value() == "train.py"
    assert again.locator("#step-op").input_value() == "all_reduce"


def test_a_link_to_a_step_chooses_it_and_brings_it_into_view(open_report: Open, trained: Record) -> None:
    page = open_report(trained, at="#step-4")
    expect(page.locator("#step h3")).to_have_text("barrier #4")
    expect(page.locator("#step")).to_be_in_viewport()
    page.evaluate("location.hash = '#step-2'")
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")


def test_an_address_that_a_reader_types_is_not_replaced_by_an_earlier_choice(
    open_report: Open, trained: Record
) -> None:
    page = open_report(trained, at="#step-4")
    expect(page.locator("#step h3")).to_have_text("barrier #4")
    expect(page).to_have_url(re.compile("#step-4$"))
    page.wait_for_timeout(300)  # the choice of step 4 is in the address
    page.evaluate(
        """() => {
          const [real, kept] = [setTimeout, []];
          window.setTimeout = (call) => kept.push(call);
          document.getElementById("previous").click();
          window.setTimeout = real;
          location.hash = "#step-2";
          for (const call of kept) call(); // before the page hears of the new address
        }"""
    )
    expect(page.locator("#step h3")).to_have_text("all_reduce #2")


@pytest.mark.parametrize("at", ["#nothing=<b>&%E0%A4%A", "#range=9-x", *SIMILAR])
def test_an_address_that_means_nothing_does_no_harm(open_report: Open, trained: Record, at: str) -> None:
    page = open_report(trained, at=at)
    page.keyboard.press("End")
    expect(page.locator("h1")).to_contain_text("passed")


def test_a_link_is_copied(open_report: Open, trained: Record) -> None:
    page = open_report(trained, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#steps [data-step='2']").click()
    page.locator("#step .copy").click()
    expect(page.locator("#step .copy")).to_have_text(re.compile("Copied|In the address bar"))
    link = page.locator("#step .heading a")
    assert link.get_attribute("href") == "#step-2"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("calls", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_steps_are_filtered(open_report: Open, tmp_path: Path, calls: int) -> None:
    page = open_report(long_training(tmp_path / "run", calls))
    steps = calls // 4
    page.locator("#step-line").select_option("train.py:11")
    expect(page.locator("#step-count")).to_have_text(f"{len(range(1, steps, 3)):,} of {steps:,} steps")
    page.locator("#step-text").fill(f"#{steps - 2} ")
    page.locator("#steps").focus()
    page.keyboard.press("End")
    expect(page.locator("#steps [role=option]")).to_have_count(len(shown(page)))
