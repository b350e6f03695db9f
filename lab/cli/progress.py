"""Progress of something that takes seconds or minutes: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import IO, TYPE_CHECKING

from lab.report.harmless import harmless
from lab.report.style import style_for

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LASTING = ("warning", "using", "removed")
"""Announcements that begin like this stay on the screen."""


class ProgressDisplay:
    """Shows the latest announcement, on a terminal with a spinner and the time that has passed."""

    def __init__(self, stream: IO[str], *, quiet: bool = False) -> None:
        self._stream = stream
        self._style = style_for(stream)
        self._quiet = quiet
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._last = ""

    def __enter__(self) -> ProgressDisplay:
        if self._stream.isatty() and not self._quiet:
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def announce(self, text: str) -> None:
        """Show a line."""
        if self._quiet or text == self._last:
            return
        self._last = text
        lasting = text.startswith(_LASTING)
        if self._bar is None:
            print(self._style.paint(harmless(text), "yellow" if lasting else "dim"), file=self._stream, flush=True)
        elif lasting:
            self._bar.console.print(harmless(text), style="yellow", markup=False, highlight=False)
        elif self._task is None:
            self._task = self._bar.add_task(harmless(text), total=None)
        else:
            self._bar.update(self._task, description=harmless(text))

    def line(self, text: str) -> None:
        """Show a line that stays, in its own colours."""
        if self._quiet:
            return
        if self._bar is None:
            print(harmless(text), file=self._stream, flush=True)
        else:
            from rich.text import Text

            self._bar.console.print(Text.from_ansi(harmless(text)), soft_wrap=True)
