"""Where the time went: ranges of the timeline, shares of each rank, the critical path."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.diagnosis.evidence import read_evidence
from lab.features.stragglers.timing import critical_path, share_of
from lab.record.read import Record
from tests.browser.runs import never_entered, training
from tests.browser.screen import bar, domain
from tests.traces import TraceMaker

Open = Callable[..., Page]
READ = """async () => {
    const [{ readModel }, { shareOf }, { pathOf }] =
        await Promise.all(["model", "shares", "path"].map((name) => import(`lab/${name}`)));
    const model = await readModel(document.getElementById("data"));
    const shares = model.ranks.map((rank) => shareOf(rank, ...model.span));
    const path = pathOf(model).map(({ rank, begin, end, call }) => [rank, begin, end, call !== null]);
    return { shares, path };
}"""


def overlapping(folder: Path) -> Record:
    """DDP's buckets beside backward, handles that are waited for, one that nobody was seen to wait for, a message."""
    maker = TraceMaker(folder, 2)
    for rank in (0, 1):
        maker.mark(rank, "init_process_group", 0, 5 + rank)
        maker.mark(rank, "backward", 20, 100)
        for begin, end in ((30 + 4 * rank, 70), (60, 96)):
            maker.call(rank, "all_reduce", begin, end, [[1.0]], [[2.0]], **{"async": True})
        maker.call(rank, "all_reduce", 110 + 20 * rank, 150, [[1.0]], [[2.0]], **{"async": True})
        maker.line(rank, "wait", 135 + rank, e=0, at="train.py:9")
        maker.line(rank, "wait", 150, e=1)
        maker.line(rank, "mark", 300, n="end", e=0)
    maker.call(0, "send", 180, 182, [[1.0]], peer=1, tag=0)
    maker.call(1, "recv", 160, 185, [], [[1.0]], peer=0, tag=0)
    return maker.record()


def unseen(folder: Path) -> Record:
    maker = TraceMaker(folder, 1)
    maker.call(0, "all_reduce", 100, 400, [[1.0]], [[1.0]], **{"async": True})
    maker.line(0, "mark", 1000, n="end", e=0)
    return maker.record()


@pytest.mark.parametrize("make", [training, overlapping, unseen])
def test_the_page_shares_time_and_finds_the_path_as_python_does(
    open_report: Open, tmp_path: Path, make: Callable[[Path], Record]
) -> None:
    record = make(tmp_path / "run")
    told = open_report(record).evaluate(READ)
    evidence = read_evidence(record)
    for rank, found in zip(evidence.trace.ranks.values(), told["shares"], strict=True):
        share, hidden_s = share_of(rank, evidence.step_of)
        seconds = {**vars(share), "hidden": hidden_s}
        names = ("total", "waiting", "communicating", "unknown", "own", "hidden")
        assert [found[name] for name in names] == pytest.approx([seconds[name] * 1e6 for name in names], abs=10)
    path = [one for one in critical_path(evidence.trace, evidence.step_of) if one.end - one.begin > 2e-6]
    shown = [one for one in told["path"] if one[2] - one[1] > 2]
    assert [(rank, within) for rank, _, _, within in shown] == [(one.rank, one.within) for one in path]
    for (_, begin, end, _), piece in zip(shown, path, strict=True):
        assert (begin, end) == pytest.approx((piece.begin * 1e6, piece.end * 1e6), abs=5)


@pytest.fixture
def page(open_report: Open, tmp_path: Path) -> Page:
    return open_report(training(tmp_path / "run"))


def test_at_first_the_whole_run_is_told(page: Page) -> None:
    expect(page.locator("#range-told")).to_contain_text("The whole run, 99 ms.")
    expect(page.locator("#range-told")).to_contain_text("Rank 0 waited longest")
    expect(page.locator("#range-told")).to_contain_text("for rank 1")
    expect(page.locator("#time-ranks tbody tr")).to_have_count(2)
    expect(page.locator("#time-phases tbody tr")).to_have_count(1)
    expect(page.locator("#time-calls tbody tr").first).to_contain_text("all_reduce6")


def test_phases_are_those_of_all_ranks_together_or_of_one(page: Page) -> None:
    phases = page.locator("#time-phases tbody tr")
    expect(phases).to_contain_text("backward132 ms")
    page.locator("#phase-rank").select_option("1")
    expect(phases).to_contain_text("backward66 ms")


def test_a_range_is_chosen_by_dragging_with_shift_and_counted(page: Page) -> None:
    whole = domain(page)
    (left, y), (right, _) = bar(page, 0, 30), bar(page, 0, 55)
    page.keyboard.down("Shift")
    page.mouse.move(left, y)
    page.mouse.down()
    page.mouse.move(right, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.locator("#range-told")).to_contain_text("From ")
    expect(page.locator("#time-calls tbody tr")).to_have_count(1)
    expect(page.locator("#time-calls tbody tr")).to_contain_text("all_reduce2")
    assert domain(page) == whole
    expect(page.locator("#step h3")).to_have_text("all_reduce #1")  # the end of a drag is no click


def test_a_range_is_chosen_by_fields_and_stands_in_the_address(page: Page) -> None:
    page.locator("#range-from").fill("80ms")
    page.locator("#range-to").fill("0.099 s")
    page.keyboard.press("Enter")
    expect(page.locator("#range-told")).to_contain_text("From 80 ms to 99 ms, 19 ms.")
    expect(page.locator("#time-calls tbody tr")).to_contain_text("barrier2")
    expect(page).to_have_url(re.compile("#range=80000-99000$"))
    page.locator("#range-to").fill("soon")
    page.keyboard.press("Enter")
    expect(page.locator("#range-to")).to_have_attribute("aria-invalid", "true")
    page.locator("#range-all").click()
    expect(page.locator("#range-told")).to_contain_text("The whole run")


def test_what_the_timeline_shows_becomes_the_range_by_a_key(page: Page) -> None:
    page.locator("#canvas").focus()
    page.keyboard.press("+")
    page.keyboard.press("r")
    expect(page.locator("#range-told")).to_contain_text("From ")


def test_calls_that_were_never_done_are_said_not_to_be_counted(open_report: Open, tmp_path: Path) -> None:
    told = open_report(never_entered(tmp_path / "run")).locator("#range-told")
    expect(told).to_contain_text("Calls of ranks 0 and 2 that never ended are not counted.")
    expect(told).not_to_contain_text("Nobody waited")


def test_a_link_restores_a_range(open_report: Open, tmp_path: Path) -> None:
    page = open_report(training(tmp_path / "run"), at="#range=80000-99000")
    expect(page.locator("#range-told")).to_contain_text("From 80 ms to 99 ms")


def test_the_critical_path_is_told_and_can_be_hidden(page: Page) -> None:
    expect(page.locator("#timeline tbody tr").first).to_contain_text(
        "rank 1's own work before all_reduce at train.py:10"
    )
    button = page.locator("#show-path")
    expect(button).to_have_attribute("aria-pressed", "true")
    before = page.locator("#canvas").evaluate("canvas => canvas.toDataURL()")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("#canvas").evaluate("canvas => canvas.toDataURL()") != before
