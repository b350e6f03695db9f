"""What ranks print, merged as it comes: whole lines only, each with its node and rank before it."""

from __future__ import annotations

from typing import IO

from lab.report.harmless import harmless
from lab.report.style import style_for
from lab.words import format_duration, plural

_LONGEST_HELD_BYTES = 1 << 20
"""A line longer than this is shown in pieces."""

_WIPE = "\r\x1b[2K"
"""Empties the line of a terminal."""


class LiveOutput:
    """Merges the output of all ranks; an observer of a run.

    Args:
        out: where the lines go.
        status: where progress goes; None: nowhere.
        quiet: show neither lines nor progress.
        lines: show what ranks print.
        raw: let what ranks print act on a terminal.
    """

    def __init__(
        self, out: IO[str], status: IO[str] | None, *, quiet: bool = False, lines: bool = True, raw: bool = False
    ) -> None:
        self._out = out
        self._status = None if quiet else status
        self._lines = lines and not quiet
        self._raw = raw
        self._style = style_for(out)
        self._status_style = style_for(status) if status is not None else self._style
        self._shown = False
        self._held: dict[tuple[int, int], bytes] = {}
        self._nodes: dict[int, str] = {}
        self._silent_ticks = 0

    def progress(self, text: str) -> None:
        """Show what is being done."""
        if self._status is not None:
            self._wipe()
            tone = "yellow" if text.startswith("warning") else "dim"
            print(self._status_style.paint(harmless(text), tone), file=self._status, flush=True)

    def tick(self, elapsed_s: float, running: int) -> None:
        """Show that the run goes on, on a terminal, in a line that is wiped again."""
        self._silent_ticks += 1
        if self._status is not None and self._status.isatty() and self._silent_ticks > 1:
            told = f"… {format_duration(round(elapsed_s))}, {plural(running, 'rank')} running"
            self._status.write(_WIPE + self._status_style.paint(told, "dim"))
            self._status.flush()
            self._shown = True

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Show every line that is whole now."""
        if not self._lines:
            return
        self._silent_ticks = 0
        self._nodes[rank] = node
        key = (rank, stream)
        text = self._held.pop(key, b"") + data
        whole, newline, rest = text.rpartition(b"\n")
        if len(rest) > _LONGEST_HELD_BYTES:
            whole, newline, rest = text, b"\n", b""
        if rest:
            self._held[key] = rest
        if newline:
            self._print(rank, whole)

    def finish(self) -> None:
        """Show what was printed without a newline at its end."""
        for (rank, _), rest in sorted(self._held.items()):
            self._print(rank, rest)
        self._held = {}
        self._wipe()

    def _print(self, rank: int, block: bytes) -> None:
        self._wipe()
        name = f"{self._nodes[rank]}/rank{rank} |" if rank >= 0 else "check |"
        prefix = self._style.rank(max(rank, 0), name)
        text = block.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
        if not self._raw:
            text = harmless(text, output=True)
        self._out.write("".join(f"{prefix} {line}\n" for line in text.split("\n")))
        self._out.flush()

    def _wipe(self) -> None:
        if self._shown and self._status is not None:
            self._status.write(_WIPE)
            self._status.flush()
            self._shown = False
