"""Print the output of ranks as it arrives: whole lines with node and rank, and a status area at the bottom."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import IO, Any

from lab.feature import find_hook
from lab.node.messages.agent import TERMINAL
from lab.record.rows import Rows
from lab.report.sanitize import sanitize_text
from lab.report.style import MANY, collapse_similar, group_by_kind, group_equal, mask_numbers, style_for
from lab.run.collect import Observer
from lab.words import format_count, format_duration, name_ranks

_COLOUR = r"\x1b\[[0-9;:]*m"
_WIPE_LINE = "\r\x1b[2K"
_UP = "\x1b[1A"


class Bottom:
    """The status area at the bottom of a terminal; for any other stream it shows nothing."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream if stream and stream.isatty() and os.environ.get("TERM") != "dumb" else None
        self._shown: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether there is a status area."""
        return self._stream is not None

    @property
    def size(self) -> os.terminal_size:
        """The columns that a line can have, and the rows: half of the terminal's."""
        columns, rows = os.get_terminal_size(self._stream.fileno()) if self._stream is not None else (0, 0)
        return os.terminal_size(((columns or 80) - 1, max(1, (rows or 24) // 2)))

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines in the status area; no line can be longer than `size`."""
        lines = tuple(lines)
        if self._stream is not None and lines != self._shown:
            wiped = _WIPE_LINE + (_UP + _WIPE_LINE) * (len(self._shown) - 1) if self._shown else ""
            self._stream.write(wiped + "\n".join(lines))
            self._stream.flush()
            self._shown = lines

    def wipe(self) -> None:
        """Clear the status area before something is printed."""
        self.show(())


def fit_columns(text: str, columns: int) -> str:
    """Return text without colours, cut to this number of columns."""
    text = re.sub(_COLOUR, "", text).expandtabs()
    if text.isascii():
        return text if len(text) <= columns else f"{text[: columns - 1]}…"
    from rich.cells import cell_len, set_cell_size  # few lines need it

    return text if cell_len(text) <= columns else f"{set_cell_size(text, columns - 1)}…"


_TOGETHER_S = 0.25
"""Lines are held back for this time, in seconds, to merge equal ones."""


class LineMerger:
    """Hold lines back for a moment and merge equal ones of several ranks; different lines keep their order.

    Args:
        whole: whether to show each line; if not, show the first ones and the last of those that differ only in numbers.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._held: list[tuple[int, tuple[str, int]]] = []
        """Rank, line, and how often the rank printed that line before."""
        self._counts: Counter[tuple[int, str]] = Counter()
        self._since = self._held_since = 0.0

    def add(self, rank: int, line: str, when: float) -> None:
        """Hold a line that was printed at this Unix time."""
        if not self._held:
            self._since, self._held_since = when, time.monotonic()
        self._held.append((rank, (line, self._counts[rank, line])))
        self._counts[rank, line] += 1

    def is_due(self, when: float) -> bool:
        """Return whether held lines must appear before a line that a rank printed at this Unix time."""
        is_late = when - self._since > _TOGETHER_S or time.monotonic() - self._held_since > _TOGETHER_S
        return bool(self._held) and is_late

    def release(self) -> Iterator[tuple[list[int], str]]:
        """Yield the held lines, each with the ranks that printed it, and hold nothing more."""
        groups, self._held = group_equal(self._held), []
        self._counts.clear()
        shown = collapse_similar(groups, lambda one: one if self._whole else mask_numbers(one[0]))
        for ranks, (line, _), hidden in shown:
            yield sorted(ranks), f"… {hidden} more lines like these: lab logs" if hidden else line


_LONGEST_HELD_BYTES = 1 << 20
"""A longer line is shown in pieces."""
_MOST_SHOWN_BYTES = 4096
_REDRAW_S = 0.05
_ERASE = r"\x1b\[[0-2]?K"
"""Erases the rest of a row, which overwriting does anyway."""
_SILENT_TICKS = 2
_TELLING_TICKS = 3
_LONG_S = 10.0
"""Seconds without output until the status shows that the run continues, and where its ranks are."""


_FRAME = r"(?:\[rank\d+\]: )?(?:frame #\d+: .*|<omitting python frames>)"
_FRAMES = rf"(?m)^{_FRAME}(?:\n{_FRAME})*"
"""C++ stack traces, which PyTorch appends to errors and warnings for its own developers."""


def _shorten_traceback(text: str) -> str:
    from lab.diagnosis.stacks import shorten_paths  # few runs have one

    return shorten_paths(text)


class LiveOutput(Observer):
    """Merge the output of all ranks; an observer of a run.

    A line is printed when it is complete. An incomplete line, such as a progress bar, is in the status area of a
    terminal; on other streams it is printed once, in its final state.

    Args:
        out: stream for the lines.
        status: stream for progress, and for incomplete lines if it is a terminal; None: neither.
        quiet: show neither lines nor progress.
        lines: show what ranks print.
        raw: let output of ranks act on a terminal.
        limit_s: time limit of the run in seconds; None: unknown.
        whole: show each line; if not, show only some of the lines of many ranks that differ only in numbers, fold C++
            stack traces, and show equal tracebacks of several ranks once.
    """

    def __init__(
        self,
        out: IO[str],
        status: IO[str] | None,
        *,
        quiet: bool = False,
        lines: bool = True,
        raw: bool = False,
        limit_s: float | None = None,
        whole: bool = False,
    ) -> None:
        self._limit_s, self._out = limit_s, out
        self._status = None if quiet else status
        self._lines = lines and not quiet
        self._raw = raw
        self._is_exact = raw or whole
        self._style = style_for(out)
        self._status_style = style_for(status) if status is not None else self._style
        self._bottom = Bottom(self._status)
        self._drawn = 0.0
        self._status_text = ""
        self._rows: dict[int, dict[int, Rows]] = {}
        """By rank and stream."""
        self._nodes: dict[int, str] = {}
        self._shared: Any = None
        """A terminal that a rank can use, see `lab.features.interactive`; None: no rank has used one."""
        self._silent_ticks = 0
        self._merger = LineMerger(whole=whole)
        self._tracebacks: dict[int, list[str]] = {}
        """By rank; held back for a moment to merge equal ones."""
        self._tracebacks_since = 0.0
        self._open_tracebacks: set[int] = set()
        """Ranks whose traceback continues with the next line."""

    def progress(self, text: str) -> None:
        """Show a line of progress."""
        if self._status is not None:
            self._bottom.wipe()
            tone = "yellow" if text.startswith("warning") else "dim"
            print(self._status_style.paint(sanitize_text(text), tone), file=self._status, flush=True)

    def terminal(self, rank: int | None, message: str, *, raw: bool) -> None:
        """Give the terminal to a rank, or take it back; other output waits for the end of the rank's line."""
        self._bottom.wipe()
        self._shared = self._shared or find_hook("shared_terminal")(self._out)
        self._shared.end_line()
        self._print_kept()
        if message and self._status is not None:
            print(self._status_style.paint(sanitize_text(message), "bold"), file=self._status, flush=True)
        self._shared.assign(rank, raw=raw)

    def tick(self, elapsed_s: float, running: int, where: Callable[[float, int], str]) -> None:
        """Show in the status area that the run continues, and after a while where its ranks are."""
        self._silent_ticks += 1
        self.flush_due()
        if self._limit_s is not None and elapsed_s >= _LONG_S and not self._bottom.is_terminal:
            self.progress(f"running for {elapsed_s:.0f} s; the time limit is {format_duration(self._limit_s)}")
            self._limit_s = None
        if not self._bottom.is_terminal or self._is_shared:
            return
        if self._silent_ticks >= _SILENT_TICKS:
            positions = where(elapsed_s, self._bottom.size.columns) if self._silent_ticks >= _TELLING_TICKS else ""
            limit = "" if self._limit_s is None else f" of {format_duration(self._limit_s)}"
            elapsed = f"{format_duration(round(elapsed_s))}{limit}"
            self._status_text = positions or f"… {elapsed}, {format_count(running, 'rank')} running"
        self._draw()

    def flush_due(self) -> None:
        """Print held lines if they have waited long enough; called regularly."""
        if self._is_due(0.0):
            self._print_merged()

    def _is_due(self, when: float) -> bool:
        late = self._tracebacks and time.monotonic() - self._tracebacks_since > _TOGETHER_S
        return bool(late) or self._merger.is_due(when)

    def begins(self, attempt: int) -> None:
        """Show the incomplete lines of the previous attempt, and that another attempt begins."""
        self.finish()
        self.progress(f"attempt {attempt} begins")

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Show each line that is complete now."""
        if stream == TERMINAL and self._is_shared and rank == self._shared.rank:
            self._shared.write(data)
            self._print_kept()
            return
        if not self._lines:
            return
        self._silent_ticks, self._status_text = 0, ""
        self._nodes[rank] = node if node.isalnum() else sanitize_text(node).replace("\n", "\\n")
        streams = self._rows.setdefault(rank, {})
        if stream not in streams:
            streams[stream] = Rows(_LONGEST_HELD_BYTES, over=not self._raw)
        settled = b"".join(rows.release_passed() for other, rows in streams.items() if other != stream)
        settled += streams[stream].feed(data)
        if self._is_due(when):
            self._print_merged()
        if settled:
            self._print(rank, settled, when)
        if self._bottom.is_terminal and not self._is_shared and time.monotonic() - self._drawn >= _REDRAW_S:
            self._draw()

    def finish(self) -> None:
        """Show output that does not end with a newline."""
        if self._shared:
            self._shared.end_line()
        for rank, streams in sorted(self._rows.items()):
            for rest in filter(None, (rows.end() for rows in streams.values())):
                self._print(rank, rest)
        self._print_kept()
        self._print_merged()
        self._rows, self._silent_ticks, self._status_text = {}, 0, ""
        self._bottom.wipe()

    @property
    def _is_shared(self) -> bool:
        """Whether a rank has the terminal."""
        return self._shared is not None and self._shared.rank is not None

    def _print_kept(self) -> None:
        """Print output that waited for the end of the line of the rank that has the terminal."""
        for rank, block in self._shared.kept() if self._shared else ():
            self._print(rank, block)

    def _print(self, rank: int, block: bytes, when: float = 0.0) -> None:
        if self._shared and self._shared.busy:
            self._shared.keep(rank, block)
            return
        text = block.decode("utf-8", "backslashreplace").replace("\r\n", "\n").removesuffix("\n")
        if not self._raw:
            text = sanitize_text(re.sub(_ERASE, "", text))
        if not self._is_exact:
            text = re.sub(_FRAMES, lambda match: f"… {match[0].count(chr(10)) + 1} C++ frames: lab logs", text)
        prefix = f"[rank{rank}]: "  # which PyTorch adds to each line of a traceback
        for is_traceback, group in groupby(text.split("\n"), partial(self._is_traceback, rank, prefix)):
            lines = [line.removeprefix(prefix) if is_traceback else line for line in group]
            if len(self._nodes) > MANY or rank >= MANY:
                for line in lines:
                    self._merger.add(rank, line, when)
            elif is_traceback:
                self._tracebacks_since = self._tracebacks_since if self._tracebacks else time.monotonic()
                self._tracebacks.setdefault(rank, []).extend(lines)
            else:
                if rank in self._tracebacks:
                    self._print_merged()
                self._write([([rank], line) for line in lines])

    def _is_traceback(self, rank: int, prefix: str, line: str) -> bool:
        """Return whether a line belongs to a traceback; without the prefix, the error ends it."""
        is_open = rank in self._open_tracebacks
        if line.startswith("Traceback (most recent call last):"):
            self._open_tracebacks.add(rank)
        elif not line.startswith(" "):
            self._open_tracebacks.discard(rank)
        return (is_open or rank in self._open_tracebacks or line.startswith(prefix)) and not self._is_exact

    def _print_merged(self) -> None:
        """Print the lines that were held back for merging."""
        if not (self._shared and self._shared.busy):
            texts = [(rank, _shorten_traceback("\n".join(lines))) for rank, lines in self._tracebacks.items()]
            same, self._tracebacks = group_equal(texts), {}
            self._write(
                [*self._merger.release(), *((ranks, line) for ranks, text in same for line in text.split("\n"))]
            )

    def _write(self, lines: Sequence[tuple[list[int], str]]) -> None:
        """Print lines, each with its ranks."""
        if lines:
            self._bottom.wipe()
            names = (self._style.rank(max(ranks[0], 0), self._name(*ranks)) for ranks, _ in lines)
            self._out.write("".join(f"{name} {line}\n" for name, (_, line) in zip(names, lines, strict=True)))
            self._out.flush()

    def _name(self, rank: int, *others: int) -> str:
        if others:
            return f"{name_ranks((rank, *others))} |"
        return f"{self._nodes[rank]}/rank{rank} |" if rank >= 0 else "check |"

    def _draw(self) -> None:
        """Show incomplete lines and the status text in the status area."""
        self._drawn = time.monotonic()
        columns, rows = self._bottom.size
        lines = [*self._unfinished(columns)]
        if len(lines) > rows:
            lines = [*lines[: rows - 1], fit_columns(f"… and {len(lines) - rows + 1} more", columns)]
        if self._status_text:
            lines.append(self._status_style.paint(fit_columns(self._status_text, columns), "dim"))
        self._bottom.show(lines)

    def _unfinished(self, columns: int) -> Iterator[str]:
        if self._raw:
            return
        rows = [
            (rank, sanitize_text(re.sub(_ERASE, "", row[:_MOST_SHOWN_BYTES].decode("utf-8", "replace"))))
            for rank, streams in sorted(self._rows.items())
            for row in (row for rows in streams.values() for row in rows.open)
        ]
        for same in group_by_kind(rows, lambda row: mask_numbers(row[1])):  # of similar lines, only the first rank's
            ranks, text = [rank for rank, _ in same], same[0][1]
            name = self._name(*ranks)
            yield f"{self._style.rank(max(ranks[0], 0), name)} {fit_columns(text, columns - len(name) - 1)}"
