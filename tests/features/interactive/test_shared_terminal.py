from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.interactive.terminal import SharedTerminal
from lab.node.messages.agent import TERMINAL
from lab.report.live import LiveOutput
from lab.report.sanitize import sanitize_line_editing
from tests.golden import golden

pytestmark = pytest.mark.unit


def shown(*pieces: bytes, raw: bool = False) -> str:
    out = io.StringIO()
    terminal = SharedTerminal(out)
    terminal.assign(1, raw=raw)
    for piece in pieces:
        terminal.write(piece)
    return out.getvalue()


def test_a_rank_that_was_given_it_may_do_all() -> None:
    assert shown(b"\x1b[2J\x1b]0;t\x07\xe2\x82", b"\xac", raw=True) == "\x1b[2J\x1b]0;t\x07€"


def test_a_rank_that_asked_for_it_may_edit_its_own_row() -> None:
    assert shown(b"\x1b[?2004h(Pdb) ab\x08\x1b[K\x1b[1P\x07\r\n") == "(Pdb) ab\x08\x1b[K\x1b[1P\r\n"
    assert shown(b"\x1b[", b"3C", b"\x1b", b"[2J") == "\x1b[3C\\x1b[2J"


@given(st.lists(st.sampled_from([b"\x1b", b"[", b"?", b"2", b"J", b"K", b"h", b"\x07", b"]", b"a", b"\n", b"\x9b"])))
def test_nothing_else_ever_acts(pieces: list[bytes]) -> None:
    text = shown(*pieces)
    assert "\x1b" not in re.sub(r"\x1b\[\d{0,3}[CDKP@]|\x1b\[[0-9;:]{0,40}m", "", text)
    assert not re.search(r"[\x07\x80-\x9f]", text)
    assert sanitize_line_editing("plain\n") == "plain\n"


def test_what_others_print_waits_for_the_end_of_the_line() -> None:
    out = io.StringIO()
    live = LiveOutput(out, None)
    live.terminal(1, "", raw=False)
    live.output(1, "node1", TERMINAL, b"(Pdb) ", 0.0)
    live.output(0, "node0", 1, b"one\ntwo\n", 0.0)
    assert out.getvalue() == "(Pdb) "
    live.output(1, "node1", TERMINAL, b"n\r\n", 0.0)
    live.output(0, "node0", 1, b"three\n", 0.0)
    expected = "(Pdb) n\r\nnode0/rank0 | one\nnode0/rank0 | two\nnode0/rank0 | three\n"
    assert out.getvalue() == expected
    live.output(1, "node1", TERMINAL, b"(Pdb) ", 0.0)
    live.output(0, "node0", 1, b"four\n", 0.0)
    live.terminal(None, "", raw=False)
    live.finish()
    assert out.getvalue() == f"{expected}(Pdb) \nnode0/rank0 | four\n"


def test_what_waits_has_a_limit() -> None:
    out = io.StringIO()
    live = LiveOutput(out, None)
    live.terminal(1, "", raw=False)
    live.output(1, "node1", TERMINAL, b"(Pdb) ", 0.0)
    for _ in range(40):
        live.output(0, "node0", 1, b"x" * 65535 + b"\n", 0.0)
    live.output(1, "node1", TERMINAL, b"\n", 0.0)
    assert len(out.getvalue()) < 1_100_000
    assert out.getvalue().endswith(golden(1))


def test_what_a_rank_wrote_to_it_is_shown_like_anything_else_afterwards() -> None:
    out = io.StringIO()
    live = LiveOutput(out, None)
    live.output(2, "node2", TERMINAL, b"(Pdb) n\r\n", 0.0)
    assert out.getvalue() == "node2/rank2 | (Pdb) n\n"
