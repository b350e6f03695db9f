"""Text of scripts, wherever in a record it stands, never becomes markup: on the page, in a notebook, in a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lab.features.html.page import result_html, write_report
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.record.layout import EVENTS, LOGS, RESULT, SCENARIO, TRACE
from lab.record.read import Record
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.cli.test_damaged_records import make

EVIL = "</script></title></style>]]>--><script>evil()</script><img src=x onerror=evil()>\"'><svg onload=evil()>{{evil}}"
MEANT = {"k", "op", "red", "verdict", "event", "boot", "g", "recorder"}
"""Keys whose values have to stay what they are, for the rest to be shown at all."""


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and what its scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def poisoned(data: Any, key: str = "") -> Any:
    """The data with something evil behind every text."""
    if isinstance(data, dict):
        return {name: poisoned(value, name) for name, value in data.items()}
    if isinstance(data, list):
        return [poisoned(item, key) for item in data]
    return (
        data + EVIL if isinstance(data, str) and key not in MEANT and not data.startswith(("node", "float")) else data
    )


@pytest.fixture
def record(tmp_path: Path) -> Record:
    folder = tmp_path / "r"
    make(folder)
    for path in (folder / RESULT, folder / EVENTS, *(folder / TRACE).iterdir()):
        lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        path.write_text("".join(json.dumps(poisoned(json.loads(line))) + "\n" for line in lines))
    for log in (folder / LOGS).glob("*.log"):
        log.write_text(EVIL[:12] + "\n")
    (folder / SCENARIO).write_text(f"name: x\nlearn: {EVIL}\n")
    (folder / "train.py").write_text(f"# {EVIL}\n")
    return Record(path=folder)


def assert_harmless(text: str) -> None:
    for tag, attributes in Tags(text).found:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "evil" not in tag
        assert tag != "img"
    assert "<script>evil" not in text


def test_on_the_page(record: Record, tmp_path: Path) -> None:
    page = write_report(record, tmp_path / "page.html").path.read_text()
    assert_harmless(page)
    scripts = [attributes for tag, attributes in Tags(page).found if tag == "script"]
    assert [script.get("type") for script in scripts] == ["importmap", "application/octet-stream", "module"]
    assert "evil" in page


def test_in_a_notebook(record: Record) -> None:
    text = result_html(record.result())
    assert_harmless(text)
    assert "<script" not in text
    assert "evil" in text


def test_in_pictures(record: Record) -> None:
    trace = read_trace(record)
    for step in match_steps(trace):
        svg = svg_of(picture_of(step, record.result().expectations, trace.world_size, []), standalone=True)
        assert_harmless(svg)
        assert all(not element.tag.endswith(("script", "img")) for element in ET.fromstring(svg).iter())
