"""What is being done for a test, told on the terminal once it takes long."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import Any

import pytest

from lab.report.harmless import harmless

_LONG_S = 8.0


class Progress:
    """Lines of progress, once something takes so long that somebody may wonder; warnings always."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._began = 0.0

    def begin(self) -> None:
        """What is announced from now on is about something else."""
        self._began = time.monotonic()

    def announce(self, text: str) -> None:
        """A line of progress."""
        long = time.monotonic() - self._began > _LONG_S
        if threading.current_thread() is not threading.main_thread():
            return  # the terminal is that of whoever imports, or waits
        if self._terminal is None or not (long or text.startswith("warning")):
            return
        with nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled():
            self._terminal.write_line(f"lab: {harmless(text)}")
