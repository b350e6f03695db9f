"""A suite as it goes on: a line for each case that ends, and on a terminal what every worker does now, with a bar."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING

from lab.features.suite.case import Case
from lab.features.suite.outcome import Attempt, Outcome
from lab.features.suite.view import again_line, outcome_line
from lab.report.harmless import harmless
from lab.report.style import Style, style_for
from lab.words import format_duration

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.live import Live

_LASTING = ("warning", "using", "removed", "interrupted")
"""What is told like this stays to be read."""
_BAR = 40


class SuiteDisplay:
    """Shows a suite; a watcher of one, and a context manager.

    Args:
        out: where cases that have ended are told.
        status: where the rest goes.
        quiet: tell nothing but what did not pass.
        machine: `out` is for data, and nothing is told there.
    """

    def __init__(self, out: IO[str], status: IO[str], *, quiet: bool = False, machine: bool = False) -> None:
        self._out = status if machine else out
        self._status = status
        self._quiet = quiet
        self._style: Style = style_for(self._out)
        self._live: Live | None = None
        self._console: Console | None = None
        self._workers: dict[int, tuple[str, float]] = {}
        self._done, self._planned, self._bad, self._drawn = 0, 0, 0, 0.0

    def __enter__(self) -> SuiteDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """Say how many clusters there are and why, and show what they do from now on."""
        self._planned = cases
        if not self._quiet:
            self._print(self._style.paint(why, "dim"))
        if self._status.isatty() and not self._quiet:
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._status, highlight=False, markup=False)
            self._live = Live(console=self._console, transient=True, auto_refresh=False, redirect_stdout=False)
            self._live.start()
            self.tick()

    def told(self, worker: int, text: str) -> None:
        """Show what a worker is doing; elsewhere than on a terminal, only what matters later."""
        if text.startswith(_LASTING):
            self._print(self._style.paint(harmless(text), "yellow"))
        elif worker:
            self._workers[worker] = (harmless(text), time.monotonic())

    def working(self, worker: int, doing: str, case: Case | None) -> None:
        """Show what a worker does."""
        text = " ".join(word for word in (doing, case.id if case else "") if word)
        self._workers[worker] = (text, time.monotonic())

    def again(self, case: Case, attempt: int, attempts: int, failed: Attempt) -> None:
        """Tell that a case is tried again."""
        self._print(again_line(case, attempt, attempts, failed, self._style))

    def ended(self, outcome: Outcome, done: int) -> None:
        """Tell what came of a case."""
        self._done = done
        self._bad += not outcome.good
        if not (self._quiet and outcome.good):
            self._print(outcome_line(outcome, done, self._planned, self._style))

    def tick(self) -> None:
        """Draw what every worker does, and the bar."""
        if self._live is not None and time.monotonic() - self._drawn > 0.2:
            self._drawn = time.monotonic()
            self._live.update(self._now(), refresh=True)

    def close(self) -> None:
        """Nothing more comes."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        """A line that stays, above what changes."""
        if self._live is not None:
            self._live.update("", refresh=True)
        print(harmless(text), file=self._out, flush=True)
        self._drawn = 0.0

    def _now(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = time.monotonic()
        lines = [
            Text(
                f"  {worker}  {format_duration(round(now - since)):>6}  {text}",
                style="dim",
                no_wrap=True,
                overflow="ellipsis",
            )
            for worker, (text, since) in sorted(self._workers.items())
            if text
        ]
        bar = Table.grid(padding=(0, 1))
        told = f"{self._done}/{self._planned}{f', {self._bad} not passed' if self._bad else ''}"
        bar.add_row(ProgressBar(total=max(1, self._planned), completed=self._done, width=_BAR), Text(told))
        return Group(*lines, bar)
