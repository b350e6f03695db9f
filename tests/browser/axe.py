"""Asks axe-core what keeps people from using a page."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import pytest
from playwright.sync_api import Page


def violations(page: Page, *rules: str) -> list[str]:
    """What axe-core finds wrong by these rules, or by all: a line each, with the rule and the first element."""
    page.evaluate(_source())
    found = page.evaluate("(rules) => axe.run({ preload: false, ...(rules.length && { runOnly: rules }) })", rules)
    assert found["passes"], "axe-core looked at nothing"
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


@lru_cache(maxsize=1)
def _source() -> str:
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python, of the extra `test`")
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
