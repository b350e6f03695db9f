"""Names that a shell completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.features.help.verb_completion import NAMES
from tests.cli.test_main import ROOT, call
from tests.golden import golden


def test_every_kind_of_names_is_asked_for_by_the_script_of_each_shell(capsys: pytest.CaptureFixture[str]):
    for shell in ("bash", "zsh"):
        script = call(capsys, "completion", shell)[1]
        for kind in NAMES:
            assert f"lab completion --names {kind} 2>/dev/null" in script
            assert len(re.findall(rf"_lab_{kind}(?!\w*\()", script)) > 0, f"no argument asks for {kind}"


def test_names_of_lessons_and_runs_are_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert "scatter\n" in call(capsys, "completion", "--names", "lessons")[1]
    assert "@scatter\n" in call(capsys, "completion", "--names", "scenarios")[1]
    for name in ("one", "$(touch x)"):
        (tmp_path / ".lab" / "runs" / name / "logs").mkdir(parents=True)
    assert call(capsys, "completion", "--names", "runs") == (0, "one\n", "")


def test_a_completion_script_for_no_shell_is_refused(capsys: pytest.CaptureFixture[str]):
    code, _, err = call(capsys, "completion")
    assert code == 2
    assert golden(1) in err


def test_bash_completes_the_names_that_the_lab_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "lab").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lab.cli.main "$@"\n')
    (tmp_path / "lab").chmod(0o755)
    (tmp_path / "script").write_text(call(capsys, "completion", "bash")[1])
    complete = (
        'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_lab; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    for words, expected in (
        (["lab", "learn", "scat"], ["scatter", "scatter_object_list", "scatter_rows"]),
        (["lab", "run", "@scatter_r"], ["@scatter_rows"]),
        (["lab", "test", "@scatter_r"], ["@scatter_rows"]),
        (["lab", "run", "scri"], ["script"]),
    ):
        said = subprocess.run(
            ["bash", "-c", complete, "bash", *words],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert sorted(said.stdout.split()) == expected, said.stderr
