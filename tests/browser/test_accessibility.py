"""Every kind of page can be used by everybody: axe-core finds nothing wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

from lab.features.compare.page import write_diff
from lab.features.grade.view import write_grades
from lab.features.html.page import write_report
from lab.features.records.records import find_suite
from lab.features.suite.page import write_suite
from lab.record.read import Record
from tests.browser.axe import violations
from tests.browser.runs import PIXEL, empty, failed, hung, lesson, never_entered, suite, training, with_files
from tests.features.grade.test_feedback import GRADES, ran

MADE = {"plot.png": PIXEL, "rank0/log.txt": b"epoch 0\n", "rank0/model.pt": b"\0\1"}
KINDS: dict[str, Callable[[Path], Record]] = {
    "passed": training,
    "failed": failed,
    "hung": hung,
    "error": never_entered,
    "lesson": lesson,
    "empty": empty,
    "files": lambda folder: with_files(folder, MADE),
}

DAILY = ("hung", "diff")
"""The other kinds are for the night."""


def page_of(kind: str, folder: Path) -> Path:
    """Writes a page of this kind."""
    if kind == "suite":
        suite(folder / "runs")
        return write_suite(find_suite(None, folder / "runs")).path
    if kind in ("grades", "grade"):
        record = failed(folder / "run")
        bob = replace(ran("bob", right=False, reason=record.result().reason), path=record.path)
        index, *pages = write_grades(replace(GRADES, grades=(*GRADES.grades, bob)), folder)
        return index if kind == "grades" else pages[-1]
    if kind == "diff":
        return write_diff(training(folder / "one"), failed(folder / "two")).path
    return write_report(KINDS[kind](folder / "run")).path


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in DAILY else [pytest.mark.long])
        for kind in (*KINDS, "suite", "diff", "grades", "grade")
    ],
)
def test_axe_finds_nothing_wrong_on_any_kind_of_page(open_page: Callable[..., Page], tmp_path: Path, kind: str) -> None:
    page = open_page(page_of(kind, tmp_path), color_scheme="light")
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.long
def test_axe_finds_nothing_wrong_where_steps_are_filtered_and_a_range_is_chosen(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page(page_of("passed", tmp_path), at="#op=barrier&range=20000-60000")
    assert violations(page) == []
    page.locator("#step-text").fill("nothing is called this")
    assert violations(page) == []


def test_links_in_text_are_underlined(open_page: Callable[..., Page], tmp_path: Path) -> None:
    page = open_page(page_of("failed", tmp_path))
    assert page.locator("main a").count() > 2
    for link in page.locator("main a").all():
        assert link.evaluate("link => getComputedStyle(link).textDecorationLine") == "underline"
