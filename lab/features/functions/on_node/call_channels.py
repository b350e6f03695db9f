"""The descriptors by which a rank is called, and what it runs in the place of a script: this module."""

from __future__ import annotations

import importlib
from typing import Any

ends: tuple[int, int] | None = None
"""Where calls arrive, and where answers go; None: nobody calls."""


def prepare_calls(spec: dict[str, Any]) -> None:
    """Take them from what the worker was started with."""
    global ends
    if spec.get("calls_fd", -1) >= 0:
        ends = (spec["calls_fd"], spec["answers_fd"])


if __name__ == "__main__":
    importlib.import_module("labnode.features.functions.on_node.calls").serve_calls()
