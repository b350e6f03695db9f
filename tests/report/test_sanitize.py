"""What scripts print is shown on a terminal, and does nothing there but colour."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.report.live import LiveOutput
from lab.report.sanitize import sanitize_text

_STYLE = r"(?:;?(?:0*(?:[123479]|[349][0-7])?|38:2::1:2:3))*"
PASSES = re.compile(rf"\x1b\[{_STYLE}m|[^\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

HARMFUL = {
    "clipboard": "\x1b]52;c;c3R1ZmY=\x07",
    "title": "\x1b]0;pwned\x1b\\",
    "alternate screen": "\x1b[?1049h",
    "cursor": "\x1b[2A\x1b[2K",
    "clear": "\x1b[2J\x1b[H",
    "reset": "\x1bc",
    "device control": "\x1bP+q544e\x1b\\",
    "report": "\x1b[6n",
    "C1 as UTF-8": "\x9b2J\x9d52;c;eA==\x9c",
    "bell and backspaces": "\x07\x08\x08\x0b\x0c\x0e",
    "delete": "\x7f",
    "colour with more behind it": "\x1b[31m\x1b[2J",
    "not quite a colour": "\x1b[?31m\x1b[31;m2J\x1b[3\x1b1m",
    "concealed": "\x1b[8mhidden\x1b[1;8mhidden\x1b[08mhidden",
    "blinking": "\x1b[5m\x1b[6;31m\x1b[38;5;1;5m",
    "a font": "\x1b[11m",
    "turned around": "\u202egnp.exe",
    "a surrogate": "\udc9b2J",
}


@pytest.mark.parametrize("text", HARMFUL.values(), ids=HARMFUL)
def test_what_acts_on_a_terminal_is_shown(text: str) -> None:
    for output in (False, True):
        shown = sanitize_text(f"before {text} after", output=output)
        assert PASSES.sub("", shown) == ""
        assert "before " in shown
        assert " after" in shown
        shown.encode()


def test_it_is_written_as_python_writes_it() -> None:
    assert sanitize_text("a\x1b]0;t\x07b\x9bc\x7f\u202ed\udcff") == "a\\x1b]0;t\\x07b\\x9bc\\x7f\\u202ed\\udcff"


def test_colours_stay_and_end_with_their_line() -> None:
    assert sanitize_text("\x1b[1;31mred\x1b[0m and \x1b[32mgreen") == "\x1b[1;31mred\x1b[0m and \x1b[32mgreen\x1b[0m"
    assert sanitize_text("\x1b[38:2::1:2:3ma\nb\x1b[m\n") == "\x1b[38:2::1:2:3ma\x1b[0m\nb\x1b[m\n"


@pytest.mark.parametrize(
    "style", ["", "0", "01;31", "38;5;8", "48;5;255;1", "38;2;8;5;8", "4:3", "97;104", "1;2;3;4;7;9;22;23;24;27;39;49"]
)
def test_styles_that_hide_nothing_stay(style: str) -> None:
    assert sanitize_text(f"\x1b[{style}mtext") == f"\x1b[{style}mtext" + ("" if style in ("", "0") else "\x1b[0m")


def test_text_stays_as_it_is() -> None:
    text = "Größe\t走 ✔ 👩‍👩‍👧\nzweite Zeile\n"
    assert sanitize_text(text) == sanitize_text(text, output=True) == text


def test_a_carriage_return_stays_in_output_alone() -> None:
    assert sanitize_text("10%\r20%\r", output=True) == "10%\r20%\r"
    assert sanitize_text("✘ failed\r✔ passed") == "✘ failed\\x0d✔ passed"


@given(st.text(alphabet=st.sampled_from("\x1b[]0;1m?hJ\x07\x9b\r\nA")), st.booleans())
def test_nothing_else_ever_passes(text: str, output: bool) -> None:
    shown = sanitize_text(text, output=output)
    assert PASSES.sub("", shown).strip("\r" if output else "") == ""


def shown(*pieces: bytes, raw: bool = False) -> str:
    out = io.StringIO()
    live = LiveOutput(out, None, raw=raw)
    for piece in pieces:
        live.output(0, "node0", 1, piece, 0.0)
    live.finish()
    return out.getvalue()


def test_a_sequence_in_two_pieces_is_shown_too() -> None:
    assert shown(b"x\x1b", b"]52;c;eA==\x07\n") == "node0/rank0 | x\\x1b]52;c;eA==\\x07\n"
    assert shown(b"\x1b[3", b"1mred\x1b[0m\n") == "node0/rank0 | \x1b[31mred\x1b[0m\n"
    assert shown(b"\xc2", b"\x9b2J\n") == "node0/rank0 | \\x9b2J\n"
    assert shown(b"\x1b[?", b"1049h") == "node0/rank0 | \\x1b[?1049h\n"


def test_raw_bytes_of_c1_are_shown() -> None:
    assert shown(b"\x9b2J\x90\n") == "node0/rank0 | \\x9b2J\\x90\n"


def test_raw_lets_them_pass() -> None:
    assert shown(b"\x1b]0;t\x07\n", raw=True) == "node0/rank0 | \x1b]0;t\x07\n"


def test_a_very_long_line_that_is_shown_in_pieces_lets_nothing_pass_at_its_seams() -> None:
    seam = (1 << 20) + 1
    text = shown(b"x" * seam + b"\x1b", b"[2J" + b"y" * seam, b"\n")
    assert "\x1b" not in text
