"""The descriptors over which a rank receives calls, and the module that it runs instead of a script: this one."""

from __future__ import annotations

import importlib
from typing import Any

ends: tuple[int, int] | None = None
"""Descriptor of calls, and descriptor of answers; None: no caller."""


def prepare_calls(spec: dict[str, Any]) -> None:
    """Get the descriptors from the start message of the worker."""
    global ends
    if spec.get("calls_fd", -1) >= 0:
        ends = (spec["calls_fd"], spec["answers_fd"])


if __name__ == "__main__":
    importlib.import_module("labnode.features.functions.on_node.calls").serve_calls()
