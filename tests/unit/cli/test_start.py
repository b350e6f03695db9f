"""The program `lab` is interrupted before it has imported anything: it says so, as it does later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli import start

INTERRUPTED_AT_ITS_FIRST_IMPORT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


def started(folder: Path, *, ignored: bool) -> subprocess.CompletedProcess[str]:
    """Start the program with a lab that gets a Ctrl-C when it is imported, and says `went on` if it survives that."""
    (folder / "lab" / "cli").mkdir(parents=True)
    (folder / "lab" / "__init__.py").write_text(INTERRUPTED_AT_ITS_FIRST_IMPORT)
    (folder / "lab" / "cli" / "main.py").write_text("def command(): print('went on')\n")
    return subprocess.run(
        [sys.executable, start.__file__],
        env={**os.environ, "PYTHONPATH": str(folder)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL) and None,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_interrupt_while_the_first_module_is_imported_is_a_word(tmp_path: Path) -> None:
    ended = started(tmp_path, ignored=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_is_ignored_where_whoever_started_it_ignores_it(tmp_path: Path) -> None:
    ended = started(tmp_path, ignored=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "went on\n", "")


@pytest.mark.parametrize("words", [["--version"], ["validate", "--help"]])
def test_it_is_the_program(words: list[str]) -> None:
    root = str(Path(start.__file__).parents[2])
    program = [sys.executable, start.__file__, *words]
    ended = subprocess.run(program, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert ended.stdout.startswith(("lab ", "usage: lab validate"))
