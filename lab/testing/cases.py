"""Import path of the base class of torch's own distributed tests; see docs/functions.md."""

from __future__ import annotations

from typing import Any

from lab.feature import find_entry


def __getattr__(name: str) -> Any:
    return getattr(find_entry("exports", "testing.cases"), name)
