"""The docs as a site: every link leads somewhere, and a page needs no network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import lab
from tests.site import site

__all__ = ["site"]
CONFIG = Path(__file__).resolve().parents[1] / "mkdocs.yml"
pytestmark = pytest.mark.xdist_group("site")


def test_no_page_of_the_site_loads_anything_from_a_network(site: Path):
    loads = re.compile(r"""(?:\bsrc=["']?|<link[^>]+href=["']?|@import ["']?|url\(["']?)(?:https?:)?//""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    assert [page.name for page in pages if loads.search(page.read_text())] == []


def test_the_reference_has_every_public_name_of_the_package(site: Path):
    page = (site / "reference" / "python.html").read_text()
    missing = [name for name in lab.__all__ if not name.startswith("__") and f">{name}<" not in re.sub(r"\s", "", page)]
    assert missing == []


def test_every_lesson_has_a_page_with_its_answer_folded(site: Path):
    names = re.findall(r'href="lesson/(\w+)\.html"', (site / "scenarios.html").read_text())
    assert len(names) > 100
    for name in names:
        page = (site / "lesson" / f"{name}.html").read_text()
        assert page.count("<details") == 2, name
        assert "<details open" not in page
        assert '<h2 id="predict">' in page
    assert 'href="rank_table.html"' in (site / "lesson" / "scatter.html").read_text(), "the next on the path"


def test_what_pages_say_of_scenarios_can_be_opened(site: Path):
    links = [
        link for page in site.glob("*.html") for link in re.findall(r'href="(scenarios/[^"#]+)"', page.read_text())
    ]
    assert len(links) > 10
    assert [link for link in links if not (site / link).is_file()] == []


def test_a_how_to_guide_is_at_most_two_screens() -> None:
    (guides,) = [part for part in yaml.safe_load(CONFIG.read_text())["nav"] if "How-to guides" in part]
    pages = [CONFIG.parent / "docs" / file for guide in guides["How-to guides"] for file in guide.values()]
    assert len(pages) > 20
    sizes = {page.name: (len(text.splitlines()), len(text.split())) for page in pages for text in [page.read_text()]}
    assert {name: size for name, size in sizes.items() if size[0] > 100 or size[1] > 600} == {}


def test_all_docs_together_stay_short_enough_to_read() -> None:
    assert sum(len(page.read_text().split()) for page in (CONFIG.parent / "docs").glob("*.md")) <= 33_000
