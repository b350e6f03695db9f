"""`lab help`: topics of the docs, in a pipe and on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import yaml

from lab.cli.main import main
from lab.cli.overview import VERBS
from lab.features.help import verb as subject
from lab.features.help.verb import anchor_of, docs_folder, find_word, list_topics, read_pages
from lab.report.style import Style
from tests.golden import golden

ROOT = Path(__file__).resolve().parents[3]
TOPICS = list_topics()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = main(("help", *words))
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys)
    assert code == 0
    for name, title in TOPICS.items():
        assert f"  {name} " in out
        assert title in out


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_is_shown_in_a_pipe_as_it_is_written(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = said(capsys, name)
    assert (code, out) == (0, read_pages()[name])
    assert out.startswith("#")
    assert "<!--" not in out
    assert len(out.splitlines()) > 5


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("remove", "pip uninstall"),
        ("uninstall", "pip uninstall"),
        ("exit-codes", "## Exit codes"),
        ("editor", "## In an editor"),
        ("environment", "## Environment"),
        ("timeout", "scenario-reference.md: | `timeout` |"),
        ("init_method", "| `rewrite_address` |"),
        ("tcp", "| `rewrite_address` |"),
    ],
)
def test_a_word_of_a_heading_or_a_key_is_found(capsys: pytest.CaptureFixture[str], word: str, shown: str) -> None:
    code, out, _ = said(capsys, word)
    assert code == 0
    assert shown in out


def test_a_section_ends_where_the_next_one_of_its_rank_begins() -> None:
    text = find_word("exit-codes")
    assert text.startswith("## Exit codes\n")
    assert "| 4 | hung" in text
    assert "## Environment" not in text
    assert "## " not in find_word("expect").removeprefix("## expect")


def test_every_page_is_a_topic() -> None:
    assert {page.stem for page in docs_folder().glob("*.md")} == TOPICS.keys()
    assert TOPICS["dependencies"] == golden(1)


def test_a_heading_has_the_anchor_that_links_to_it_have() -> None:
    assert anchor_of("Expected calls") == "expected-calls"
    assert anchor_of(golden(1)) == "what-yaml-does-and-what-is-refused"


def test_a_verb_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    verb = next(verb for verb in VERBS if verb not in TOPICS)
    code, out, _ = said(capsys, verb)
    assert code == 0
    assert out.startswith(f"usage: lab {verb}")


@pytest.mark.parametrize(("wrong", "right"), [("depencencies", "dependencies"), ("stauts", "status")])
def test_a_topic_that_is_nearly_right_is_suggested(capsys: pytest.CaptureFixture[str], wrong: str, right: str) -> None:
    code, out, err = said(capsys, wrong)
    assert (code, out) == (2, "")
    assert golden(1, f"{wrong!r}", right) in err


def test_what_is_rendered_fits_the_terminal() -> None:
    for topic, page in read_pages().items():
        lines = subject._rendered(page, Style(colour=False, width=80)).splitlines()
        assert max(map(len, lines)) <= 80, topic


def test_on_a_terminal_it_is_shown_by_the_pager(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PAGER": f"tee {tmp_path}/paged", "NO_COLOR": "1"}
    environment.pop("FORCE_COLOR", None)
    call = [sys.executable, "-m", "lab.cli.main", "help", "exit-codes"]
    with subprocess.Popen(call, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        while _read(ours):
            pass
        assert process.wait(30) == 0
    os.close(ours)
    assert re.search(r"130 +.*interrupted", (tmp_path / "paged").read_text())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody writes there any more
        return b""


def test_the_menu_of_the_site_has_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in TOPICS:
        assert f"{name}.md" in menu
    assert yaml.safe_load(menu)["nav"]
