"""Dumps of strangers are imported, or refused in a sentence, in bounded time and memory; so are views of the record."""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.features.dumps.made import dump, entry, waiting
from tests.golden import golden
from tests.hostile.dump_sets import SETS, call, started

MOST_CPU_S = 20
MOST_MEMORY_BYTES = 1500 << 20
VIEWS = (["explain"], ["show"], ["show", "--steps"], ["report", "-o", "report.html"])
ACTING = ("\x1b", "\x07", "\x00", "\u202e", "\u2066", "\x85")


@dataclass
class Answer:
    """What a command printed, and what it took."""

    code: int
    output: str
    error: str


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES + (512 << 20),) * 2)  # libraries are mapped, too


def answer(folder: Path, *words: str) -> Answer:
    """What a command answers that the kernel ends after 20 s of computing, or beyond 1.5 GiB of memory."""
    command = [sys.executable, "-m", "lab.cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=170, preexec_fn=_limit)
    found = Answer(done.returncode, done.stdout.decode(), done.stderr.decode())
    said = found.output + found.error
    assert found.code in (0, 1), (words, found.code, said[-300:])
    assert "Traceback" not in said
    assert "something went wrong" not in said
    assert "MemoryError" not in said
    assert not [sign for sign in ACTING if sign in said]
    assert not [name for name in os.listdir(folder) if name.startswith("lab-error-")]
    return found


def check_import(folder: Path) -> Answer:
    """Import the dumps of a folder, and view the record; where they are refused, no record is left."""
    imported = answer(folder, "import", "fr", "dumps", "--runs", "runs")
    if imported.code:
        assert imported.error.startswith("lab: ")
        assert len(imported.error) < 1500
        assert not imported.output
        runs = folder / "runs"
        assert not runs.exists() or not os.listdir(runs)
        return imported
    for view in VIEWS:
        answer(folder, *view, "--runs", "runs")
    return imported


SLOW = {
    "a_ring_of_messages",
    "a_hundred_thousand_messages",
    "a_hundred_thousand_coalesced_calls",
    "a_thousand_groups_of_100_000_ranks",
    "calls_in_four_thousand_groups",
    "every_rank_calls_something_else",
    "json_of_180_000_calls",
    "names_of_900_characters",
    "sixty_million_nones",
    "thirty_million_tensors",
}
"""Sets that take 10 s and more to make, import, and view."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.long] if one in SLOW else []) for one in SETS])
def test_hostile_dumps_are_imported_or_refused_within_limits(name: str, tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    SETS[name](tmp_path / "dumps")
    check_import(tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a_hundred_thousand_ranks_in_a_group", "rank_0 tells of a group of 100,000 ranks; allowed: 4,096"),
        ("a_hundred_thousand_groups", "rank_0 tells of 100,000 groups; allowed: 4,096"),
        ("a_hundred_thousand_files", "dumps holds more than 4,096 files, the most that are read"),
        ("two_files_beyond_what_is_read_together", "dumps holds 80 MiB of dumps in 2 files; allowed: 64 MiB"),
        ("sixty_million_marks", "rank_0 needs more than 512 MiB of memory, which no dump does"),
        ("twenty_million_empty_lists_of_json", "rank0.json holds more than 8,000,000 values, which no dump does"),
        ("groups_described_by_numbers", "rank_0 tells of a group whose name or description is no text"),
        ("compressed_dumps", "rank_0 holds the step '\\x1f', and dumps are plain data"),
    ],
)
def test_a_refusal_names_the_file_what_it_holds_and_what_is_allowed(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    SETS[name](tmp_path / "dumps")
    refused = answer(tmp_path, "import", "fr", "dumps", "--runs", "runs")
    assert refused.code == 1
    assert said in refused.error


def test_links_and_special_files_are_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    SETS["what_is_no_regular_file"](tmp_path / "dumps")
    output = check_import(tmp_path).output
    for said in ("rank_1 is a pipe", "rank_2 is a symbolic link", "rank_4 is a folder", "rank_7 is a socket"):
        assert said in output
    assert golden(1) in output


@pytest.mark.long
def test_a_large_job_keeps_its_latest_calls_and_names_its_culprit(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    calls = [*(call(number) for number in range(250)), started(250)]
    here, absent = (pickle.dumps(dump(of, range(1000)), protocol=2) for of in (calls, calls[:-1]))
    for rank in range(1000):
        (folder / f"rank_{rank}").write_bytes(absent if rank == 7 else here)
    imported = check_import(tmp_path)
    assert golden(1) in imported.output
    assert golden(2) in imported.output


def test_every_call_of_30_ranks_with_2_000_calls_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(30):
        calls = [*(entry(number) for number in range(2000)), *([waiting(2000)] if rank else [])]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(30)), protocol=2))
    imported = answer(tmp_path, "import", "fr", "dumps", "--runs", "runs", "--json")
    said = json.loads(imported.output)
    assert said["culprit"]["rank"] == 0
    assert said["problems"] == []


def test_limits_can_be_raised(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(4):
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump([call(0), started(1)], range(5000)), protocol=2))
    assert answer(tmp_path, "import", "fr", "dumps", "--runs", "runs").code == 1
    assert answer(tmp_path, "import", "fr", "dumps", "--runs", "runs", "--large").code == 0


def test_nothing_in_a_dump_is_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    folder = tmp_path / "dumps"
    folder.mkdir()
    for protocol in range(6):
        data = pickle.dumps(dump([{**call(0), "frames": [Evil()]}]), protocol)
        (folder / f"rank_{protocol}").write_bytes(data)
    assert answer(tmp_path, "import", "fr", "dumps", "--runs", "runs").code == 1
    assert not (tmp_path / "made").exists()
