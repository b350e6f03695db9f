"""pytest as another process, with no other plugin than the lab's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pytest_words(*words: str) -> list[str]:
    """The command, with its arguments."""
    return [sys.executable, "-m", "pytest", "-p", "lab.pytest_plugin", "-p", "no:cacheprovider", *words]


def pytest_environment() -> dict[str, str]:
    """What is around that process: nothing of the pytest that runs this test."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join(filter(None, (mine.get("PYTHONPATH"), str(ROOT))))
    return {**mine, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
