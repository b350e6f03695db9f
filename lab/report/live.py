"""What ranks print, merged as it comes: whole lines with their node and rank, and lines below that are replaced."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from lab.feature import find_hook
from lab.node.messages.agent import TERMINAL
from lab.record.rows import Rows
from lab.report.sanitize import sanitize_text
from lab.report.style import style_for
from lab.report.table import MANY, collapse_similar, group_by_kind, group_equal, mask_numbers
from lab.run.collect import Observer
from lab.words import format_count, format_duration, name_ranks

_COLOUR = r"\x1b\[[0-9;:]*m"
_WIPE_LINE = "\r\x1b[2K"
_UP = "\x1b[1A"


class Bottom:
    """The bottom of a terminal; of any other stream nothing is ever shown there."""

    def __init__(self, stream: IO[str] | None) -> None:
        usable = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._stream = stream if usable else None
        self._shown: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        """Whether there is such a bottom."""
        return self._stream is not None

    @property
    def size(self) -> os.terminal_size:
        """Columns that a line may have, and half of the rows, for which there is room."""
        columns, rows = os.get_terminal_size(self._stream.fileno()) if self._stream is not None else (0, 0)
        return os.terminal_size(((columns or 80) - 1, max(1, (rows or 24) // 2)))

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines in the place of those that are there; none may be longer than there is room for."""
        lines = tuple(lines)
        if self._stream is not None and lines != self._shown:
            wiped = _WIPE_LINE + (_UP + _WIPE_LINE) * (len(self._shown) - 1) if self._shown else ""
            self._stream.write(wiped + "\n".join(lines))
            self._stream.flush()
            self._shown = lines

    def wipe(self) -> None:
        """Make room for what is printed."""
        self.show(())


def fit_columns(text: str, columns: int) -> str:
    """The text without colours, cut off where it takes more columns."""
    text = re.sub(_COLOUR, "", text).expandtabs()
    if text.isascii():
        return text if len(text) <= columns else f"{text[: columns - 1]}…"
    from rich.cells import cell_len, set_cell_size  # most lines do without

    return text if cell_len(text) <= columns else f"{set_cell_size(text, columns - 1)}…"


_TOGETHER_S = 0.25
"""Lines are held back for so long."""


class CrowdLines:
    """Holds lines back for a moment and puts together what is alike; order is kept between lines that are not.

    Args:
        whole: whether every line is told; else, of many that differ in their numbers only, the first ones and the last.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._held: list[tuple[int, tuple[str, int]]] = []
        """Rank, line, and how often the rank had printed that before."""
        self._seen: Counter[tuple[int, str]] = Counter()
        self._since = self._held_since = 0.0

    def take(self, rank: int, line: str, when: float) -> None:
        """Hold a line that was printed at that Unix time."""
        if not self._held:
            self._since, self._held_since = when, time.monotonic()
        self._held.append((rank, (line, self._seen[rank, line])))
        self._seen[rank, line] += 1

    def due(self, when: float) -> bool:
        """Whether what is held is to be told before what was printed at that Unix time."""
        return when - self._since > _TOGETHER_S or time.monotonic() - self._held_since > _TOGETHER_S

    def told(self) -> Iterator[tuple[list[int], str]]:
        """What was held, each line with the ranks that printed it; nothing is held any more."""
        groups, self._held = group_equal(self._held), []
        self._seen.clear()
        for ranks, (line, _), more in collapse_similar(
            groups, lambda one: one if self._whole else mask_numbers(one[0])
        ):
            yield sorted(ranks), f"… {more} more lines like these: lab logs" if more else line


_LONGEST_HELD_BYTES = 1 << 20
"""A line longer than this is shown in pieces."""
_MOST_SHOWN_BYTES = 4096
_REDRAW_S = 0.05
_ERASE = r"\x1b\[[0-2]?K"
"""Erases what stands in a row, which is done anyway where one is written over."""
_SILENT_TICKS = 2
_TELLING_TICKS = 3
"""After so many seconds without a word of a rank it is told that the run goes on, and where the ranks are."""


class LiveOutput(Observer):
    """Merges the output of all ranks; an observer of a run.

    A line goes by when it is whole. One that is not, such as a progress bar that is written over and over, stands at
    the bottom of a terminal; elsewhere it is printed once, as it is at its end.

    Args:
        out: where the lines go.
        status: where progress goes, and unfinished lines if it is a terminal; None: nowhere.
        quiet: show neither lines nor progress.
        lines: show what ranks print.
        raw: let what ranks print act on a terminal.
        whole: show every line; else, of what many ranks print that differs in its numbers only, not all.
    """

    def __init__(
        self,
        out: IO[str],
        status: IO[str] | None,
        *,
        quiet: bool = False,
        lines: bool = True,
        raw: bool = False,
        whole: bool = False,
    ) -> None:
        self._out = out
        self._status = None if quiet else status
        self._lines = lines and not quiet
        self._raw = raw
        self._style = style_for(out)
        self._status_style = style_for(status) if status is not None else self._style
        self._bottom = Bottom(self._status)
        self._drawn = 0.0
        self._told = ""
        self._rows: dict[int, dict[int, Rows]] = {}
        """By rank and stream."""
        self._nodes: dict[int, str] = {}
        self._shared: Any = None
        """A terminal that ranks may have, see `lab.features.interactive`; None: none has had one."""
        self._silent_ticks = 0
        self._crowd = CrowdLines(whole=whole)

    def progress(self, text: str) -> None:
        """Show what is being done."""
        if self._status is not None:
            self._bottom.wipe()
            tone = "yellow" if text.startswith("warning") else "dim"
            print(self._status_style.paint(sanitize_text(text), tone), file=self._status, flush=True)

    def terminal(self, rank: int | None, told: str, *, raw: bool) -> None:
        """Show what a rank writes to the terminal that it has now; what others print waits for the end of its line."""
        self._bottom.wipe()
        self._shared = self._shared or find_hook("shared_terminal")(self._out)
        self._shared.end_line()
        self._print_kept()
        if told and self._status is not None:
            print(self._status_style.paint(sanitize_text(told), "bold"), file=self._status, flush=True)
        self._shared.assign(rank, raw=raw)

    def tick(self, elapsed_s: float, running: int, where: Callable[[float, int], str]) -> None:
        """Show that the run goes on, and after a while where its ranks are, at the bottom of a terminal."""
        self._silent_ticks += 1
        self.settle()
        if not self._bottom.there or self._is_shared:
            return
        if self._silent_ticks >= _SILENT_TICKS:
            places = where(elapsed_s, self._bottom.size.columns) if self._silent_ticks >= _TELLING_TICKS else ""
            self._told = places or f"… {format_duration(round(elapsed_s))}, {format_count(running, 'rank')} running"
        self._draw()

    def settle(self) -> None:
        """Print what was held back to be put together with more, if that has not come; called now and then."""
        if self._crowd.due(0.0):
            self._print_crowd()

    def begins(self, attempt: int) -> None:
        """Show what the ranks of the attempt before left unfinished, and that another one begins."""
        self.finish()
        self.progress(f"attempt {attempt} begins")

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Show every line that is whole now."""
        if stream == TERMINAL and self._is_shared and rank == self._shared.rank:
            self._shared.write(data)
            self._print_kept()
            return
        if not self._lines:
            return
        self._silent_ticks, self._told = 0, ""
        self._nodes[rank] = node if node.isalnum() else sanitize_text(node).replace("\n", "\\n")
        streams = self._rows.setdefault(rank, {})
        if stream not in streams:
            streams[stream] = Rows(_LONGEST_HELD_BYTES, over=not self._raw)
        settled = b"".join(rows.release_passed() for other, rows in streams.items() if other != stream)
        settled += streams[stream].feed(data)
        if self._crowd.due(when):
            self._print_crowd()
        if settled:
            self._print(rank, settled, when)
        if self._bottom.there and not self._is_shared and time.monotonic() - self._drawn >= _REDRAW_S:
            self._draw()

    def finish(self) -> None:
        """Show what was printed without a newline at its end."""
        if self._shared:
            self._shared.end_line()
        for rank, streams in sorted(self._rows.items()):
            for rest in filter(None, (rows.end() for rows in streams.values())):
                self._print(rank, rest)
        self._print_kept()
        self._print_crowd()
        self._rows, self._silent_ticks, self._told = {}, 0, ""
        self._bottom.wipe()

    @property
    def _is_shared(self) -> bool:
        """Whether a rank has the terminal."""
        return self._shared is not None and self._shared.rank is not None

    def _print_kept(self) -> None:
        """Print what had to wait for the end of the line of who has the terminal."""
        for rank, block in self._shared.kept() if self._shared else ():
            self._print(rank, block)

    def _print(self, rank: int, block: bytes, when: float = 0.0) -> None:
        if self._shared and self._shared.busy:
            self._shared.keep(rank, block)
            return
        text = block.decode("utf-8", "backslashreplace").replace("\r\n", "\n").removesuffix("\n")
        if not self._raw:
            text = sanitize_text(re.sub(_ERASE, "", text))
        if len(self._nodes) > MANY or rank >= MANY:
            for line in text.split("\n"):
                self._crowd.take(rank, line, when)
        else:
            self._write([([rank], line) for line in text.split("\n")])

    def _print_crowd(self) -> None:
        """Print what was held back to be put together."""
        if not (self._shared and self._shared.busy):
            self._write([*self._crowd.told()])

    def _write(self, lines: Sequence[tuple[list[int], str]]) -> None:
        """Print lines, each with the ranks that it is of."""
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
        """Put what is unfinished, and what is told while all is silent, at the bottom."""
        self._drawn = time.monotonic()
        columns, rows = self._bottom.size
        lines = [*self._unfinished(columns)]
        if len(lines) > rows:
            lines = [*lines[: rows - 1], fit_columns(f"… and {len(lines) - rows + 1} more", columns)]
        told = [self._status_style.paint(fit_columns(self._told, columns), "dim")] if self._told else []
        self._bottom.show([*lines, *told])

    def _unfinished(self, columns: int) -> Iterator[str]:
        if self._raw:
            return
        rows = [
            (rank, sanitize_text(re.sub(_ERASE, "", row[:_MOST_SHOWN_BYTES].decode("utf-8", "replace"))))
            for rank, streams in sorted(self._rows.items())
            for row in (row for rows in streams.values() for row in rows.open)
        ]
        for same in group_by_kind(
            rows, lambda row: mask_numbers(row[1])
        ):  # of what differs in numbers only, the first rank's
            ranks, text = [rank for rank, _ in same], same[0][1]
            name = self._name(*ranks)
            yield f"{self._style.rank(max(ranks[0], 0), name)} {fit_columns(text, columns - len(name) - 1)}"
