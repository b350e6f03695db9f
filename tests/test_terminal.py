"""What a terminal changes: nothing but colour and the length of a table's lines."""

from __future__ import annotations

import io
import os

import pytest

from lab.diagnosis.stacks import shorten_paths
from lab.report.style import Style, style_for, table_text
from tests.golden import golden

ROWS = [["a", "x" * 100], ["bbb", "short"]]


def test_a_table_is_cut_at_the_edge_of_a_terminal_and_nowhere_else():
    cut = table_text(["name", "reason"], ROWS, Style(colour=False, width=40)).splitlines()
    assert cut == ["name  reason", "a     " + "x" * 33 + "…", "bbb   short"]
    assert "x" * 100 in table_text(["name", "reason"], ROWS, Style(colour=False))


@pytest.mark.parametrize(
    ("variables", "colour"), [({}, False), ({"NO_COLOR": "1"}, False), ({"FORCE_COLOR": "1"}, True)]
)
def test_a_file_is_as_wide_as_it_likes(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], colour: bool):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert style_for(io.StringIO()) == Style(colour=colour)


def test_a_terminal_has_its_width_and_colours(monkeypatch: pytest.MonkeyPatch):
    import fcntl
    import struct
    import termios

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    there, here = os.openpty()
    fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("4H", 24, 72, 0, 0))
    with os.fdopen(here, "w") as stream:
        assert style_for(stream) == Style(colour=True, width=72)
    os.close(there)


def test_paths_of_packages_are_short():
    line = '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/x.py", line 3 in barrier'
    assert shorten_paths(line) == golden(1)
    assert shorten_paths('  File "/usr/lib/python3.11/json/__init__.py", line 3') == (
        '  File "/usr/lib/python3.11/json/__init__.py", line 3'
    )
