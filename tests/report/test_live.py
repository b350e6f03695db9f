"""What a person sees of a run while it goes on: lines above, what is unfinished at the bottom, and where ranks are."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import termios
from collections.abc import Iterator

import pytest

from lab.report.live import Bottom, LiveOutput, fit_columns
from tests.golden import golden

pytestmark = pytest.mark.unit


class Terminal:
    """A pseudo-terminal with so many columns, and what its screen shows of what was written."""

    def __init__(self, columns: int) -> None:
        self.there, here = os.openpty()
        fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.stream = os.fdopen(here, "w", encoding="utf-8")
        os.set_blocking(self.there, False)
        self.written = ""

    def screen(self) -> list[str]:
        """The lines on the screen, as far as the sequences of this program go."""
        while True:
            try:
                self.written += os.read(self.there, 65536).decode()
            except BlockingIOError:
                break
        lines, at = [""], 0
        for part in re.split(r"(\r\n|\r|\x1b\[2K|\x1b\[1A)", re.sub(r"\x1b\[[0-9;]*m", "", self.written)):
            if part == "\r\n":
                at += 1
                lines += [""] if at == len(lines) else []
            elif part == "\x1b[2K":
                lines[at] = ""
            elif part == "\x1b[1A":
                at -= 1
            elif part != "\r":
                lines[at] += part
        return [line for line in lines if line]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal(60)
    yield made
    made.stream.close()
    os.close(made.there)


@pytest.fixture
def live(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> LiveOutput:
    monkeypatch.setattr("lab.report.live._REDRAW_S", 0.0)
    return LiveOutput(terminal.stream, terminal.stream)


def nowhere(elapsed_s: float, columns: int) -> str:
    return ""


def test_each_rank_has_a_line_for_its_bar_and_lines_go_by_above(terminal: Terminal, live: LiveOutput) -> None:
    for percent in (10, 20, 30):
        for rank in (1, 0):
            live.output(rank, f"node{rank}", 2, f"\r{percent}%|###".encode(), 0.0)
    live.output(1, "node1", 1, b"hello\n", 0.0)
    assert terminal.screen() == ["node1/rank1 | hello", "node0/rank0 | 30%|###", "node1/rank1 | 30%|###"]
    live.output(0, "node0", 2, b"\r100%|###\nx\n", 0.0)
    live.finish()
    shown = ["node1/rank1 | hello", "node0/rank0 | 100%|###", "node0/rank0 | x", "node1/rank1 | 30%|###"]
    assert terminal.screen() == shown


def test_without_a_terminal_a_bar_is_printed_once_as_it_is_last() -> None:
    out = io.StringIO()
    live = LiveOutput(out, out)
    for percent in range(101):
        live.output(0, "node0", 2, f"\r\x1b[K{percent}%".encode(), 0.0)
    live.output(0, "node0", 2, b"\n", 0.0)
    live.finish()
    assert out.getvalue() == "node0/rank0 | 100%\n"


def test_bars_are_cut_at_the_edge_and_show_nothing_that_acts(terminal: Terminal, live: LiveOutput) -> None:
    live.output(0, "node0", 1, b"\r\x1b]0;title\x07" + b"x" * 100, 0.0)
    [line] = terminal.screen()
    assert line == "node0/rank0 | \\x1b]0;title\\x07" + "x" * 28 + "…"
    assert len(line) == 59


def test_no_more_bars_than_there_is_room_for(terminal: Terminal, live: LiveOutput) -> None:
    for rank in range(16):
        live.output(rank, "node0", 1, b"\r1%", 0.0)
    lines = terminal.screen()
    assert lines[10:] == ["node0/rank10 | 1%", "… and 5 more"]


def test_bars_of_many_ranks_that_differ_in_their_numbers_only_are_one(terminal: Terminal, live: LiveOutput) -> None:
    for rank in range(40):
        live.output(rank, f"node{rank}", 1, b"\rwaiting" if rank == 7 else b"\r%d%%" % rank, 0.0)
    live.tick(1.0, 40, nowhere)
    assert terminal.screen()[:2] == ["ranks 0-6 and 8-39 | 0%", "node7/rank7 | waiting"]


def shown(*lines: tuple[int, str, float], whole: bool) -> list[str]:
    """What is shown of lines of ranks, printed at those Unix times."""
    out = io.StringIO()
    live = LiveOutput(out, None, whole=whole)
    for rank, text, when in lines:
        live.output(rank, f"node{rank}", 1, f"{text}\n".encode(), when)
    live.finish()
    return out.getvalue().splitlines()


@pytest.mark.parametrize("whole", [True, False])
def test_a_line_that_many_ranks_print_is_shown_once_and_another_one_by_itself(whole: bool) -> None:
    lines = [(rank, "loss is nan" if rank == 77 else "loss 0.5", 3.0) for rank in reversed(range(128))]
    assert shown(*lines, whole=whole) == ["ranks 0-76 and 78-127 | loss 0.5", golden(1)]


def test_of_lines_that_differ_in_their_numbers_the_first_and_the_last_are_shown_and_how_many_there_are() -> None:
    lines = [(rank, f"sum {rank}", 3.0) for rank in range(16, 116)]
    assert shown(*lines, whole=False) == [
        *(f"node{rank}/rank{rank} | sum {rank}" for rank in (16, 17, 18, 19)),
        golden(1),
        "node115/rank115 | sum 115",
    ]
    assert shown(*lines, whole=True) == [f"node{rank}/rank{rank} | sum {rank}" for rank in range(16, 116)]


def test_lines_of_another_time_are_not_put_together_nor_those_that_a_rank_prints_twice() -> None:
    lines = [(rank, "step", when) for when in (3.0, 4.0) for rank in (20, 21, 21)]
    assert shown(*lines, whole=True) == ["ranks 20 and 21 | step", "node21/rank21 | step"] * 2


def test_after_a_while_of_silence_it_is_told_where_ranks_are(terminal: Terminal, live: LiveOutput) -> None:
    live.tick(1.0, 2, nowhere)
    assert terminal.screen() == []
    live.tick(2.0, 2, nowhere)
    assert terminal.screen() == ["… 2 s, 2 ranks running"]
    live.tick(
        3.0,
        2,
        lambda elapsed_s, columns: fit_columns(f"… {elapsed_s:.0f} s  rank 0: all_reduce train.py:41 (9 s)", columns),
    )
    assert terminal.screen()[0].startswith(golden(1))
    live.output(1, "node1", 1, b"hello\n", 0.0)
    live.tick(4.0, 2, nowhere)
    assert terminal.screen() == ["node1/rank1 | hello"]


def test_where_nothing_is_recorded_only_the_time_is_told(terminal: Terminal, live: LiveOutput) -> None:
    for second in range(1, 5):
        live.tick(float(second), 1, nowhere)
    assert terminal.screen() == ["… 4 s, 1 rank running"]


def test_a_quiet_run_shows_nothing(terminal: Terminal) -> None:
    live = LiveOutput(terminal.stream, terminal.stream, quiet=True)
    live.output(0, "node0", 1, b"\r1%", 0.0)
    for _ in range(5):
        live.tick(1.0, 1, nowhere)
    assert terminal.screen() == []


def test_a_dumb_terminal_has_no_bottom(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not Bottom(terminal.stream).is_terminal


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("\x1b[31mabc\x1b[0m", 3, "abc"),
        ("走走走", 6, "走走走"),
        ("走走走", 5, "走走…"),
        ("a走走", 4, "a走…"),
    ],
)
def test_text_is_cut_by_the_columns_that_it_takes(text: str, columns: int, shown: str) -> None:
    assert fit_columns(text, columns) == shown


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 7\nValueError: {0}'


def printed(*texts: tuple[int, str], whole: bool = False) -> list[str]:
    """What is printed after ranks wrote these texts to standard error at one time."""
    out = io.StringIO()
    live = LiveOutput(out, None, whole=whole)
    for rank, text in texts:
        live.output(rank, f"node{rank}", 2, f"{text}\n".encode(), 1.0)
    live.finish()
    return out.getvalue().splitlines()


def traceback(rank: int, error: str) -> tuple[int, str]:
    return rank, "\n".join(f"[rank{rank}]: {line}" for line in TRACEBACK.format(error).splitlines())


def test_equal_tracebacks_of_several_ranks_are_shown_once_and_others_by_themselves() -> None:
    lines = printed(traceback(0, "no"), traceback(1, "other"), traceback(2, "no"))
    assert lines == [
        *(f"ranks 0 and 2 | {line}" for line in TRACEBACK.format("no").splitlines()),
        *(f"node1/rank1 | {line}" for line in TRACEBACK.format("other").splitlines()),
    ]


def test_tracebacks_from_before_a_process_group_are_merged_without_the_folders_of_nodes() -> None:
    text = 'Traceback (most recent call last):\n  File "/tmp/lab-0-aa/c/node{0}/run/work/a.py", line 7\nValueError: no'
    shorter = text.replace("/tmp/lab-0-aa/c/node{0}/run/work/", "")
    lines = printed(*((rank, text.format(rank)) for rank in range(2)))
    assert lines == [f"ranks 0 and 1 | {line}" for line in shorter.splitlines()]


def test_what_a_rank_prints_after_its_traceback_is_shown_after_it() -> None:
    assert printed(traceback(0, "no"), (0, "end"), traceback(1, "no"))[2:5] == [
        "node0/rank0 | ValueError: no",
        "node0/rank0 | end",
        "node1/rank1 | Traceback (most recent call last):",
    ]


def test_a_stack_of_cpp_is_one_line_unless_everything_is_asked_for() -> None:
    text = "W refused\nframe #0: a(b) + 0x9d (0x1 in libc10.so)\n<omitting python frames>\nframe #14: python3()\nend"
    assert printed((0, text)) == ["node0/rank0 | W refused", golden(1), "node0/rank0 | end"]
    assert [line.partition("| ")[2] for line in printed((0, text), whole=True)] == text.splitlines()
    assert printed(traceback(0, "no"), whole=True)[0] == "node0/rank0 | [rank0]: Traceback (most recent call last):"
