"""Slurm's commands: where they are not, what they say when they fail, and in which environment they are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.engine.select import select_engine
from lab.errors import EngineAbsent, EngineUnavailable
from lab.features.slurm.command import clean_environment, last_error_line, query_slurm
from tests.golden import golden


def program(folder: Path, text: str) -> None:
    (folder / "squeue").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "squeue").chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first one on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_without_slurms_commands_the_engine_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineAbsent, match=golden(1)):
        select_engine("slurm")


def test_what_a_command_prints_is_the_answer(folder: Path):
    program(folder, 'echo "$@"')
    assert query_slurm("squeue", "--noheader") == "--noheader\n"


def test_a_job_that_slurm_does_not_know_any_more_is_no_failure(folder: Path):
    program(folder, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert query_slurm("squeue") == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact slurm controller"),
        ("exit 1", "Slurm does not answer: squeue"),
        ("exec sleep 60", "did not answer squeue within 200 ms"),
    ],
)
def test_another_failure_means_that_slurm_does_not_answer(folder: Path, text: str, why: str):
    program(folder, text)
    with pytest.raises(EngineUnavailable, match=why):
        query_slurm("squeue", deadline_s=0.2 if "sleep" in text else 20.0)


def test_the_allocation_that_this_process_may_run_in_is_none_of_the_clusters(monkeypatch: pytest.MonkeyPatch):
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.setenv(name, "1")
    assert {name for name in clean_environment() if name.startswith("SLURM_")} == {"SLURM_CONF"}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("salloc: Pending job allocation 1\nsalloc: error: A\nsalloc: Job has been cancelled\n", "A"),
        ("salloc: unrecognized option '--foo=3'\nTry \"salloc --help\" for more information\n", "salloc: unrecognized"),
        ("", ""),
    ],
)
def test_the_last_word_is_the_error(said: str, word: str):
    assert last_error_line(said).startswith(word)
    assert bool(last_error_line(said)) is bool(word)
