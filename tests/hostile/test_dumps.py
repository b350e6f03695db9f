"""Dumps of strangers are imported, or refused in a sentence, in bounded time and memory; so are views of the record."""

from __future__ import annotations

import ast
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.features.dumps.dump import DEFAULT
from lab.spec.load import load_scenario
from tests.features.dumps.made import dump, entry, waiting
from tests.golden import golden
from tests.hostile.dump_sets import SETS, USUAL, call, started, write
from tests.hostile.limited import Answer, Forks

MOST_CPU_S = 20
MOST_MEMORY_BYTES = 1500 << 20
VIEWS = (["explain"], ["show"], ["show", "--steps"], ["report", "-o", "report.html"])
pytestmark = pytest.mark.xdist_group("tests/hostile/test_dumps.py")  # one process imports what all commands need
ACTING = ("\x1b", "\x07", "\x00", "\u202e", "\u2066", "\x85")


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Commands that the kernel ends after 20 s of computing, or beyond 1.5 GiB of memory."""
    forks = Forks(cpu_s=MOST_CPU_S, memory_bytes=MOST_MEMORY_BYTES + (512 << 20))  # libraries are mapped, too
    folder = tmp_path_factory.mktemp("learned")
    write(folder, dump([call(0), started(1)]))
    forks.learn(folder, ["import", "fr", ".", "--runs", "runs"], *([*view, "--runs", "runs"] for view in VIEWS))
    yield forks
    forks.close()


class Here:
    """A folder with dumps, in which commands are called and checked."""

    def __init__(self, folder: Path, limited: Forks) -> None:
        self.folder, self._limited = folder, limited
        self.dumps = folder / "dumps"
        self.dumps.mkdir(parents=True)

    def answer(self, *words: str) -> Answer:
        """What a command answers."""
        found = self._limited.lab(self.folder, *words)
        said = found.output + found.error
        assert found.code in (0, 1), (words, found.code, said[-300:])
        assert "Traceback" not in said
        assert "unexpected error" not in said
        assert "MemoryError" not in said
        assert not [sign for sign in ACTING if sign in said]
        assert not [name for name in os.listdir(self.folder) if name.startswith("lab-error-")]
        return found

    def import_dumps(self, *words: str) -> Answer:
        """Import the dumps."""
        return self.answer("import", "fr", "dumps", "--runs", "runs", *words)

    def check_import(self) -> Answer:
        """Import the dumps, and view the record; where they are refused, no record is left."""
        imported = self.import_dumps()
        if imported.code:
            assert imported.error.startswith("lab: ")
            assert len(imported.error) < 1500
            assert not imported.output
            runs = self.folder / "runs"
            assert not runs.exists() or not os.listdir(runs)
            return imported
        for view in VIEWS:
            self.answer(*view, "--runs", "runs")
        return imported


@pytest.fixture
def here(tmp_path: Path, limited: Forks) -> Here:
    return Here(tmp_path / "here", limited)


REFUSALS = {
    "a_hundred_thousand_ranks_in_a_group": "rank_0 has a group of 100,000 ranks; allowed: 4,096",
    "a_thousand_groups_of_100_000_ranks": "rank_0 has a group of 99,999 ranks; allowed: 4,096",
    "a_hundred_thousand_groups": "rank_0 has {size:,} groups; allowed: 4,096",
    "groups_with_more_members_than_allowed": "the groups in the dumps list too many ranks in total; allowed",
    "a_hundred_thousand_files": "dumps has more than 4,096 files; allowed: 4,096",
    "two_files_beyond_what_is_read_together": "dumps holds 80 MiB of dumps in 2 files; allowed: 64 MiB",
    "sixty_million_entries_of_the_memo": "rank_0 needs more than 512 MiB of memory, which no dump does",
    "twenty_million_empty_lists_of_json": "rank0.json has more than 8,000,000 values, which no dump has",
    "groups_described_by_numbers": "rank_0 has a group whose name or description is no text",
    "compressed_dumps": "rank_0 is larger than 64 MiB, which no dump is",
}
"""What the refusal of a set says: the file, what it holds, and what is allowed."""
APART = {"what_is_no_regular_file"}
"""Sets that tests of their own import."""


def sets() -> Iterator[Any]:
    """Every set with its size, and whether it takes long: those that have sizes are tried at a small one too."""
    for name in SETS.keys() - APART:
        if name in USUAL:
            yield pytest.param(name, {"size": USUAL[name]}, id=f"{name}-{USUAL[name]}")
        yield pytest.param(name, {}, id=name, marks=[pytest.mark.long] if name in USUAL else [])


@pytest.mark.sample(16)  # one rule for all: refuse or import
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "size"), sorted(sets(), key=lambda one: str(one.id)))
def test_hostile_dumps_are_imported_or_refused_within_limits(name: str, size: dict[str, int], here: Here) -> None:
    SETS[name](here.dumps, **size)
    imported = here.check_import()
    refusal = REFUSALS.get(name, "").format(**{"size": 100_000, **size})
    assert imported.code == 1 or not refusal
    assert refusal in imported.error


def test_links_and_special_files_are_named_and_not_read(here: Here) -> None:
    SETS["what_is_no_regular_file"](here.dumps)
    output = here.check_import().output
    for said in ("rank_1 is a pipe", "rank_2 is a symbolic link", "rank_4 is a folder", "rank_7 is a socket"):
        assert said in output
    assert golden(1) in output


@pytest.mark.long
def test_a_large_job_keeps_its_latest_calls_and_names_its_culprit(here: Here) -> None:
    calls = [*(call(number) for number in range(250)), started(250)]
    present, absent = (pickle.dumps(dump(of, range(1000)), protocol=2) for of in (calls, calls[:-1]))
    for rank in range(1000):
        (here.dumps / f"rank_{rank}").write_bytes(absent if rank == 7 else present)
    imported = here.check_import()
    assert golden(1) in imported.output
    assert golden(2) in imported.output


@pytest.mark.parametrize("ranks", [3, pytest.param(30, marks=pytest.mark.long)])
def test_every_call_of_30_ranks_with_2_000_calls_is_kept(ranks: int, here: Here) -> None:
    assert DEFAULT.calls > 30 * 2001
    for rank in range(ranks):
        calls = [*(entry(number) for number in range(2000)), *([waiting(2000)] if rank else [])]
        (here.dumps / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(ranks)), protocol=2))
    said = json.loads(here.import_dumps("--json").output)
    assert said["culprit"]["rank"] == 0
    assert said["problems"] == []


def test_limits_can_be_raised(here: Here) -> None:
    for rank in range(4):
        (here.dumps / f"rank_{rank}").write_bytes(pickle.dumps(dump([call(0), started(1)], range(5000)), protocol=2))
    assert here.import_dumps().code == 1
    assert here.import_dumps("--large").code == 0


EVIL = 'send==__import__("os").mkdir("made")or'
"""An expression without a space, and the beginning of a call."""


@pytest.mark.parametrize("is_p2p", [True, False])
@pytest.mark.parametrize("name", [f"nccl:{EVIL} {{}}", f"{EVIL}:send {{}}"])
def test_no_text_of_a_dump_becomes_code_of_the_scenario(name: str, is_p2p: bool, here: Here) -> None:
    text = f'{EVIL}\n"""\n{EVIL}\u2028{EVIL}\r{EVIL}'
    frames = [{"filename": f"/{text}.py", "line": 3, "name": text}]
    for rank in range(2):
        last = {"profiling_name": name.format(f"{rank}->{1 - rank}"), "is_p2p": is_p2p, "p2p_seq_id": 1,
                "process_group": ("0", text), "input_dtypes": [text], "output_dtypes": [text]}  # fmt: skip
        data = dump([call(0, frames=frames), started(1, frames=frames, **last)], range(2))
        (here.dumps / f"rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))

    if here.import_dumps("--scenario", "hang", "--no-verify").code == 0:
        tree = ast.parse((here.folder / "hang" / "script.py").read_text())
        called = {ast.unparse(one.func) for one in ast.walk(tree) if isinstance(one, ast.Call)}
        known = {f"dist.{op}" for op in ("init_process_group", "get_rank", "all_reduce", "barrier", "send", "recv")}
        assert called <= known | {"torch.ones", "torch.empty", "time.sleep"}
        assert load_scenario(here.folder / "hang" / "scenario.yaml").expect.verdict == "hung"


def test_nothing_in_a_dump_is_executed(here: Here) -> None:
    made = here.folder / "made"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(made),)

    for protocol in range(6):
        data = pickle.dumps(dump([{**call(0), "frames": [Evil()]}]), protocol)
        (here.dumps / f"rank_{protocol}").write_bytes(data)
    assert here.import_dumps().code == 1
    assert not made.exists()
