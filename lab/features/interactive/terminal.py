"""Input of ranks: the standard input of this process, or its terminal, which one rank has at a time.

Others print meanwhile: their lines wait until the line of the rank that has the terminal ends.
"""

from __future__ import annotations

import os
import re
import termios
import time
import tty
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from lab.errors import UsageError
from lab.node.messages import agent as messages
from lab.report.sanitize import sanitize_line_editing
from lab.run.options import SELDOM_S, Stdin
from lab.words import format_count, name_ranks

if TYPE_CHECKING:
    from lab.plan.plan import Plan
    from lab.run.agent_channels import AgentChannels
    from lab.run.collect import Observer

_CHUNK_BYTES = 4096


class Keyboard:
    """The terminal that is the standard input of this process.

    In raw mode it delivers every key at once, Ctrl-C too. Output to the terminal works as usual.
    """

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd
        """File descriptor of its keys."""
        self._before: list[Any] | None = None

    @classmethod
    def find(cls) -> Keyboard | None:
        """Return the terminal if a user has it: it is both standard streams, and this process is in its foreground."""
        with suppress(OSError):
            if os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp():
                return cls()
        return None

    @classmethod
    def require(cls) -> Keyboard:
        """Return the terminal.

        Raises:
            UsageError: There is none.
        """
        if (keyboard := cls.find()) is None:
            hint = "run it with a terminal as input and output"
            raise UsageError("there is no terminal for an interactive rank", hint)
        return keyboard

    @property
    def is_raw(self) -> bool:
        """Whether it is in raw mode."""
        return self._before is not None

    @property
    def size(self) -> tuple[int, int]:
        """Return rows and columns."""
        columns, rows = os.get_terminal_size(self.fd)
        return rows, columns

    def enter_raw_mode(self) -> None:
        """Enter raw mode; keys from before stay readable."""
        if self._before is not None:
            return
        self._before = termios.tcgetattr(self.fd)
        tty.setraw(self.fd)
        raw = termios.tcgetattr(self.fd)
        raw[tty.OFLAG] = self._before[tty.OFLAG]
        termios.tcsetattr(self.fd, termios.TCSADRAIN, raw)

    def restore(self) -> None:
        """Restore its mode."""
        if self._before is not None:
            termios.tcsetattr(self.fd, termios.TCSADRAIN, self._before)
            self._before = None

    def read(self) -> bytes:
        """Read keys."""
        with suppress(OSError):  # the terminal no longer exists
            return os.read(self.fd, _CHUNK_BYTES)
        return b""


_RANK = 0
_MOST_UNDERWAY_BYTES = 1 << 18
_TERMINAL_CHUNK_BYTES = 1 << 16
_ENOUGH = b"\x1d"
_HOW_TO_END = "Ctrl-] ends the run"
_SIZE_S = 0.2
"""Interval of polling the size of the terminal."""
_PATIENCE_S = 0.3
"""After a step, a rank at a breakpoint may return within this time; until then no other rank gets the terminal."""


def choose_stdin(plan: Plan, observer: Observer, *, fed: bool) -> Stdin | None:
    """Return the input of the ranks of a run; None: none.

    Args:
        plan: Says which rank has the terminal, if any.
        observer: Receives the rank that has it.
        fed: Whether rank 0 reads the standard input.

    Raises:
        UsageError: A launcher starts the ranks, or there is no terminal.
    """
    if fed:
        if not plan.ranks_planned:
            raise UsageError(f"with the launcher {plan.launcher.name}, rank 0 cannot read standard input")
        return FedStdin(plan)
    keyboard = Keyboard.find() if plan.interactive is None else Keyboard.require()
    return Terminal(plan, keyboard, observer) if keyboard is not None else None


class FedStdin(Stdin):
    """Input from a descriptor of this process for the first rank, no faster than that rank reads it."""

    def __init__(self, plan: Plan, fd: int = 0) -> None:
        self._plan, self._fd = plan, fd
        self._agents: AgentChannels | None = None
        self._underway = 0
        """Bytes that the rank has not received yet."""

    def kind(self, rank: int) -> str:
        """Return the kind of input of a rank."""
        return messages.FED if rank == _RANK else messages.NOTHING

    def start_reading(self, agents: AgentChannels) -> None:
        """Begin to read."""
        self._agents = agents
        agents.add_reader(self._fd, self._read)

    def handle_message(self, message: messages.Message) -> None:
        """Read again once the rank has read everything; stop if it no longer reads."""
        if isinstance(message, messages.InputDelivered) and self._agents is not None:
            self._underway -= message.bytes
            self._agents.remove_reader(self._fd)
            if message.closed:
                self.stop_reading()
            elif self._underway < _MOST_UNDERWAY_BYTES:
                self._agents.add_reader(self._fd, self._read)

    def stop_reading(self) -> None:
        """Stop reading."""
        if self._agents is not None:
            self._agents.remove_reader(self._fd)
        self._agents = None

    def _read(self) -> None:
        agents = self._agents
        if agents is None:
            return
        try:
            data = os.read(self._fd, _TERMINAL_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        agents.send(self._plan.workers[_RANK].node, messages.Input(self._plan.run, _RANK, data, last=not data))
        self._underway += len(data)
        if not data:
            self.stop_reading()
        elif self._underway >= _MOST_UNDERWAY_BYTES:
            agents.remove_reader(self._fd)


class Terminal(Stdin):
    """Sends keys to the rank that has the terminal.

    Args:
        plan: Says which rank has it from the start; None: the ranks that request it, one after the other.
        keyboard: The terminal.
        observer: Receives the rank that has it.
    """

    def __init__(self, plan: Plan, keyboard: Keyboard, observer: Observer) -> None:
        self._plan, self._keyboard, self._observer = plan, keyboard, observer
        self._agents: AgentChannels | None = None
        self._has: int | None = plan.interactive
        self._left: int | None = None
        """The last rank that had it and may return."""
        self._until = 0.0
        self._waiting: dict[int, messages.Breakpoint] = {}
        self._over: set[int] = set()
        self._size: tuple[int, int] | None = None
        """The size that the rank knows."""
        self._held_since: float | None = None
        self._held_s = 0.0

    def kind(self, rank: int) -> str:
        """Return the kind of input of a rank."""
        if self._plan.interactive is None:
            return messages.ON_REQUEST
        return messages.OWN if rank == self._plan.interactive else messages.ANOTHERS

    def env(self, rank: int) -> dict[str, str]:
        """Return the kind of terminal, for the rank that has it."""
        return {"TERM": os.environ.get("TERM", "dumb")} if rank == self._plan.interactive else {}

    @property
    def held(self) -> bool:
        """Whether a rank waits for the user."""
        return self._held_since is not None

    @property
    def held_s(self) -> float:
        """Seconds for which a rank has waited for the user."""
        return self._held_s + (time.monotonic() - self._held_since if self._held_since is not None else 0.0)

    def start_reading(self, agents: AgentChannels) -> None:
        """Give the terminal to the rank that the plan names."""
        self._agents = agents
        if self._has is not None:
            self._attach(agents, self._has)
            self._observer.terminal(self._has, f"{self._name(self._has)} has the terminal; {_HOW_TO_END}", raw=True)

    def handle_message(self, message: messages.Message) -> None:
        """Handle the request of a rank, its release of the terminal, or its end."""
        if isinstance(message, messages.Breakpoint):
            if self.kind(message.rank) == messages.ON_REQUEST and message.rank not in self._over:
                self._waiting[message.rank] = message
                self.poll()
        elif isinstance(message, messages.Continued):
            if message.rank == self._has:
                self._has, self._left, self._until = None, message.rank, time.monotonic() + _PATIENCE_S
                self.poll()
        elif isinstance(message, messages.Exited):
            self._over.add(message.rank)
            self._waiting.pop(message.rank, None)
            if message.rank in (self._has, self._left):
                self._has, self._left, self._until = None, message.rank, 0.0
            self.poll()

    def poll(self) -> float:
        """Send a new size to the rank that has the terminal, or give the terminal to the next rank."""
        if self._agents is None:
            return SELDOM_S
        if self._has is not None:
            if self._keyboard.is_raw and self._size != self._keyboard.size:
                self._size = self._keyboard.size
                self._agents.send(self._node(self._has), messages.Window(self._plan.run, self._has, *self._size))
            return _SIZE_S
        now = time.monotonic()
        if self._waiting and (self._left in self._waiting or now >= self._until):
            self._grant(self._agents, self._left if self._left in self._waiting else min(self._waiting))
        elif self._left is not None and now >= self._until:
            self._release()
        return max(0.0, self._until - now) if self._left is not None else SELDOM_S

    def stop_reading(self) -> None:
        """Restore the mode of the terminal."""
        if self._agents is not None and (self._has is not None or self._left is not None):
            self._has = None
            self._release()
        self._agents = None

    def _grant(self, agents: AgentChannels, rank: int) -> None:
        asked, again = self._waiting.pop(rank), rank == self._left
        self._has, self._left = rank, None
        self._attach(agents, rank)
        if not again:
            others = f"; next: {name_ranks(self._waiting)}" if self._waiting else ""
            text = f"{self._name(rank)} is at a breakpoint, {asked.at}, and has the terminal{others}; {_HOW_TO_END}"
            self._observer.terminal(rank, text, raw=False)
        agents.send(self._node(rank), messages.Release(self._plan.run, rank, "grant", ""))

    def _attach(self, agents: AgentChannels, rank: int) -> None:
        if self._held_since is None:
            self._held_since = time.monotonic()
        if not self._keyboard.is_raw:
            self._keyboard.enter_raw_mode()
            agents.add_reader(self._keyboard.fd, self._typed)
        self._size = self._keyboard.size
        agents.send(self._node(rank), messages.Window(self._plan.run, rank, *self._size))

    def _release(self) -> None:
        left, self._left = self._left, None
        self._held_s, self._held_since = self.held_s, None
        if self._agents is not None and self._keyboard.is_raw:
            self._agents.remove_reader(self._keyboard.fd)
            self._keyboard.restore()
        text = f"{self._name(left)} continues" if left is not None and left not in self._over else ""
        self._observer.terminal(None, text, raw=False)

    def _typed(self) -> None:
        if self._agents is None or not self._keyboard.is_raw:
            return
        if not (data := self._keyboard.read()) or _ENOUGH in data:
            self.stop_reading()
            raise KeyboardInterrupt
        rank = self._has if self._has is not None else self._left
        if rank is not None:
            self._agents.send(self._node(rank), messages.Input(self._plan.run, rank, data))

    def _node(self, rank: int) -> str:
        return self._plan.workers[rank].node

    def _name(self, rank: int) -> str:
        return f"rank {rank} ({self._node(rank)})"


_MOST_KEPT_BYTES = 1 << 20
_new_decoder = partial(getincrementaldecoder("utf-8"), "backslashreplace")
_UNFINISHED = r"\x1b(?:\[[\d?]{0,6})?\Z"
"""The beginning of a control sequence without its end."""


class SharedTerminal:
    """The terminal of the lab's user; one rank has it at a time."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self.rank: int | None = None
        """The rank that has it."""
        self._raw = False
        self._open = False
        """Whether that rank has written an unfinished line."""
        self._decoder = _new_decoder()
        self._rest = ""
        """The beginning of a control sequence."""
        self._kept: list[tuple[int, bytes]] = []
        self._kept_bytes = self._dropped = 0

    @property
    def busy(self) -> bool:
        """Whether output of others would now disturb what the user types."""
        return self.rank is not None and self._open

    def assign(self, rank: int | None, *, raw: bool) -> None:
        """Give it to a rank, or to none; with `raw`, its control sequences have their effect."""
        self.rank, self._raw, self._decoder, self._rest = rank, raw, _new_decoder(), ""

    def write(self, data: bytes) -> None:
        """Show output of the rank."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        if not self._raw:
            if unfinished := re.search(_UNFINISHED, text):
                text, self._rest = text[: unfinished.start()], unfinished[0]
            text = sanitize_line_editing(text)
        if text:
            self._out.write(text)
            self._out.flush()
            self._open = not text.endswith("\n")

    def end_line(self) -> None:
        """Make the next output start on a new line."""
        if self._open:
            self._open = False
            self._out.write("\n")
            self._out.flush()

    def keep(self, rank: int, block: bytes) -> None:
        """Keep output of another rank until it can be shown."""
        if self._kept_bytes + len(block) > _MOST_KEPT_BYTES:
            self._dropped += block.count(b"\n")
            return
        self._kept.append((rank, block))
        self._kept_bytes += len(block)

    def kept(self) -> Iterator[tuple[int, bytes]]:
        """Show the kept output if possible."""
        if not self._kept or self.busy:
            return
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        yield from kept
        if self._dropped:
            self._out.write(f"… {format_count(self._dropped, 'line')} more: see `lab logs`\n")
            self._dropped = 0
