"""The page of a run as it happens, in a real browser: what is pushed arrives, buttons work, hostile text stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from lab.features.watch.now import Follower, Watched
from lab.features.watch.server import Server, page_of
from tests.browser.axe import violations
from tests.browser.conftest import PATIENCE_MS
from tests.features.watch.growing import ORIGIN, Growing
from tests.golden import golden

PHONE = {"width": 390, "height": 844}
HELD = {"g": "0", "in": [["float32", [2]]], "iv": [[1.0, 2.0]], "ib": 8, "red": "SUM", "async": False, "at": "s.py:7"}
ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"


class Lesson:
    """A run of three ranks that is watched on a page."""

    def __init__(self, folder: Path) -> None:
        self.run = Growing(folder)
        self.watched = Watched(step=True)
        self.stepper = self.watched
        self.follower = Follower(self.run.record, stepping=True)
        self.server = Server(page_of("lesson"), stepper=self.stepper)

    def look(self, at_ms: float = 1000) -> None:
        """Push what there is now."""
        self.run.write()
        now, more = self.follower.poll(ORIGIN + at_ms / 1e3)
        while more:
            now, more = self.follower.poll(ORIGIN + at_ms / 1e3)
        self.server.show(self.stepper.update(now, self.follower), self.follower)

    def reduce(self, rank: int, number: int, at_ms: float, end_ms: float | None) -> None:
        """A rank reduces."""
        values = [[float(rank), 1.0]]
        self.run.made.call(rank, "all_reduce", at_ms, end_ms, values, [[3.0, 3.0]], red="SUM", at="s.py:7")


@pytest.fixture
def lesson(tmp_path: Path) -> Iterator[Lesson]:
    made = Lesson(tmp_path / "run")
    made.look(1)
    yield made
    made.server.stop()
    made.run.end()


@pytest.fixture
def opened(chromium: Browser, lesson: Lesson) -> Iterator[Callable[..., Page]]:
    """Opens the page; whatever it logs as an error fails the test."""
    contexts, wrong = [], []

    def open_page(**viewport: int) -> Page:
        context = chromium.new_context(viewport=viewport or {"width": 1920, "height": 1080})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(lesson.server.url)
        page.wait_for_selector("html[data-events]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in wrong if "ERR_CONNECTION_REFUSED" not in text] == []  # where a server has gone


def test_what_is_pushed_arrives_without_a_reload(lesson: Lesson, opened: Callable[..., Page]) -> None:
    page = opened()
    expect(page.locator("#ranks > li")).to_have_count(3)
    lesson.reduce(0, 1, 10, None)
    lesson.look()
    first = page.locator("#ranks > li").first
    expect(first.locator(".told")).to_have_text("in all_reduce #1")
    expect(first.locator(".since")).to_contain_text("waits for rank 1rank 2")
    expect(first.locator(".place")).to_have_text("s.py:7")
    expect(page.locator("#waits path")).to_have_count(2)
    lesson.run.prints(1, b"hello\n", 20)
    lesson.look()
    expect(page.locator("#log li")).to_have_text(["0.0201hello"])


def test_the_picture_of_a_step_is_the_reports(lesson: Lesson, opened: Callable[..., Page]) -> None:
    page = opened()
    for rank in range(3):
        lesson.reduce(rank, 1, 10 + rank, 20)
    lesson.look()
    expect(page.locator("#current h3")).to_contain_text("all_reduce #1")
    expect(page.locator("#current svg.picture")).to_be_visible()
    assert page.locator("#current svg.picture title").first.text_content() == "Step 1: all_reduce #1"


def test_the_button_and_the_space_key_let_a_step_go(lesson: Lesson, opened: Callable[..., Page]) -> None:
    page = opened()
    expect(page.locator("#step")).to_be_disabled()
    for number in (1, 2):
        for rank in range(3):
            lesson.run.made.line(rank, "hold", 10 * number, i=number, op="all_reduce", seq=number, **HELD)
        lesson.look()
        expect(page.locator("#step")).to_be_enabled()
        expect(page.locator("#next h3")).to_contain_text(f"Next: all_reduce #{number}")
        with page.expect_response(lambda answer: answer.url.endswith("/step") and answer.status == 204):
            page.locator("#step").click() if number == 1 else page.keyboard.press(" ")
        lesson.look()
        assert lesson.watched.collect_released() == dict.fromkeys(range(3), number)
        for rank in range(3):
            lesson.reduce(rank, number, 10 * number + 1, 10 * number + 2)
        lesson.look()
        expect(page.locator("#current h3")).to_contain_text(f"all_reduce #{number}")
    with page.expect_response(lambda answer: answer.url.endswith("/run-on") and answer.status == 204):
        page.keyboard.press("c")
    lesson.look()
    expect(page.locator("#step")).to_be_hidden()


def test_who_comes_late_sees_the_whole_and_the_end_has_verdict_and_report(
    lesson: Lesson, opened: Callable[..., Page]
) -> None:
    for number in range(450):
        lesson.run.prints(0, b"line %d\n" % number, number)
    lesson.look()
    lesson.run.end("failed", "rank 1 did it")
    lesson.look(2000)
    lesson.look(2000)
    lesson.server.close()
    page = opened()
    page.wait_for_selector("html[data-done]")
    expect(page.locator("#verdict")).to_contain_text("✘ failed")
    expect(page.locator("#verdict")).to_contain_text("rank 1 did it")
    expect(page.locator("#log li").first).to_have_text("50 lines left out here")
    expect(page.locator("#log li").last).to_contain_text("line 449")
    expect(page.locator("#report")).to_be_visible()


def test_what_a_script_names_and_prints_is_only_text(lesson: Lesson, opened: Callable[..., Page]) -> None:
    page = opened()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for rank in range(3):
        values = [[float(rank)]]
        lesson.run.made.call(rank, ATTACK, 10, 20, values, values, red="SUM", at=f"{ATTACK}:1", via=ATTACK, fn=ATTACK)
    lesson.run.prints(0, f"{ATTACK}\n".encode(), 10)
    lesson.run.event("exited", 1, 30, code=1, error=ATTACK)
    lesson.look()
    expect(page.locator("#log li span").last).to_have_text(ATTACK)
    expect(page.locator("#ranks .told").nth(1)).to_have_text(f"exit 1: {ATTACK}")
    expect(page.locator("#current h3")).to_contain_text(ATTACK)
    assert page.locator(golden(1)).count() == 0
    assert [url for url in asked if not url.startswith(lesson.server.url)] == []


@pytest.mark.parametrize("size", [PHONE, {"width": 1920, "height": 1080}], ids=["phone", "projector"])
def test_nothing_is_wider_than_the_screen(lesson: Lesson, opened: Callable[..., Page], size: dict[str, int]) -> None:
    page = opened(**size)
    for rank in range(3):
        lesson.run.made.call(rank, "all_gather", 10, 20, [[1.5] * 40], [[1.5] * 40] * 3, at=f"{'long' * 30}.py:7")
        lesson.run.prints(rank, b"w" * 500 + b"\n", 10)
    lesson.look()
    expect(page.locator("#current svg.picture")).to_be_visible()
    expect(page.locator("#log li")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_a_presentation_follows_the_run_and_lets_steps_go(lesson: Lesson, opened: Callable[..., Page]) -> None:
    page = opened()
    expect(page.locator("#present")).to_be_disabled()
    for rank in range(3):
        lesson.reduce(rank, 1, 10 + rank, 20)
        lesson.run.made.line(rank, "hold", 30, i=2, op="all_reduce", seq=2, **HELD)
    lesson.look()
    expect(page.locator("#step")).to_be_enabled()
    page.keyboard.press("p")
    expect(page.locator("#show h2")).to_have_text("all_reduce #1")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".show-stage")).to_have_attribute("data-side", "after")
    with page.expect_response(lambda answer: answer.url.endswith("/step") and answer.status == 204):
        page.keyboard.press("PageDown")
    for rank in range(3):
        lesson.reduce(rank, 2, 40 + rank, 50)
    lesson.look()
    expect(page.locator("#show h2")).to_have_text("all_reduce #2")
    expect(page.locator(".show-position")).to_have_text("2 of 2 · after")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#show h2")).to_have_text("all_reduce #1")
    assert violations(page) == []


def test_a_connection_that_is_lost_is_told(lesson: Lesson, opened: Callable[..., Page]) -> None:
    page = opened()
    lesson.server.stop()
    expect(page.locator("#connection")).to_contain_text("is lost")
