"""Files that ranks make come back from the nodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, Result
from tests.engines.conftest import written
from tests.golden import golden

Run = Callable[..., Result]

SCRIPT = """\
import os
rank = os.environ["RANK"]
os.makedirs("out", exist_ok=True)
if rank == "0":
    open("out/model.pt", "wb").write(os.urandom(1) * 300_000)
open("same.txt", "w").write("the same")
open("mine.txt", "w").write(rank)
os.symlink("/etc/passwd", "link")
open("large.bin", "wb").truncate(5 << 30)
open("data.txt", "a").write("!")
"""


def files(result: Result) -> dict[str, int]:
    assert result.outputs_folder is not None
    there = {
        str(path.relative_to(result.outputs_folder)): path.stat().st_size
        for path in result.outputs_folder.rglob("*")
        if path.is_file()
    }
    assert {one.path: one.bytes for one in result.outputs} == there
    return there


def test_what_a_run_makes_and_changes_is_in_its_record(run: Run, tmp_path: Path) -> None:
    script = written(tmp_path / "s", SCRIPT)
    (tmp_path / "s" / "data.txt").write_text("shipped")
    (tmp_path / "s" / "other.txt").write_text("shipped")

    result = run(script, nodes=2)

    assert result.passed, result.reason
    assert result.path is not None
    assert result.outputs_folder == result.path / "files"
    assert files(result) == {
        "rank0/out/model.pt": 300_000,
        "same.txt": 8,
        "data.txt": 8,
        "rank0/mine.txt": 1,
        "rank1/mine.txt": 1,
    }
    assert (result.outputs_folder / "data.txt").read_text() == "shipped!"
    assert result.outputs_left_out == (golden(1), golden(2))
    assert Result.load(result.path) == result

    again = run(script, nodes=2, outputs=tmp_path / "here")
    assert again.outputs_folder == tmp_path / "here"
    assert files(again) == files(result)


@pytest.mark.local_first
def test_what_a_rank_that_fails_has_made_comes_back(run: Run, tmp_path: Path) -> None:
    result = run(written(tmp_path / "s", "open('a', 'w').write('a')\nraise SystemExit(3)"), nodes=1)
    assert result.verdict == "failed"
    assert files(result) == {"rank0/a": 1}


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_a_run_without_a_cluster_makes_one_whose_shared_folder_comes_back_and_removes_it(
    engine: str, tmp_path: Path
) -> None:
    text = "import os\nopen(os.environ['LAB_SHARED'] + '/a', 'a').write('shared')\nprint(os.environ['WORLD_SIZE'])"
    script = written(tmp_path / "s", text)
    cluster = Cluster(name=f"t-own-{os.getpid()}", engine=engine)  # type: ignore[arg-type]

    result = cluster.run(script, nodes=2, runs=tmp_path / "runs")

    assert result.passed, result.reason
    assert [rank.log for rank in result.ranks] == ["2\n", "2\n"]
    assert files(result) == {"shared/a": 12}
    assert cluster.info() is None


# -- many and large files

SMALL = """\
import os
os.mkdir("out")
for i in range(int(os.environ["FILES"])):
    with open(f"out/{i}", "w") as file:
        file.write(f"{i} and {i % 7}")
"""
LARGE = """\
import hashlib, os
from lab import note
block, digest = os.urandom(999_992), hashlib.sha256()
with open("large", "wb") as file:
    for i in range(int(os.environ["MEGABYTES"])):
        data = i.to_bytes(8, "big") + block
        file.write(data)
        digest.update(data)
note("digest", digest.hexdigest())
"""


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def test_thousands_of_equal_files_of_several_ranks_come_back_once(run: Run, tmp_path: Path) -> None:
    result = run(written(tmp_path / "s", SMALL), nodes=3, env={"FILES": "2000"}, timeout_s=60.0)

    assert result.passed, result.reason
    assert result.outputs_folder is not None
    assert result.outputs_left_out == ()
    assert {one.path for one in result.outputs} == {f"out/{number}" for number in range(2000)}
    assert {one.ranks for one in result.outputs} == {(0, 1, 2)}
    for number in (0, 7, 1999):
        assert (result.outputs_folder / "out" / str(number)).read_text() == f"{number} and {number % 7}"


@pytest.mark.parametrize("megabytes", [200, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
def test_a_large_file_arrives_as_it_was(run: Run, tmp_path: Path, megabytes: int) -> None:
    result = run(written(tmp_path / "s", LARGE), nodes=1, env={"MEGABYTES": str(megabytes)}, timeout_s=120.0)

    assert result.passed, result.reason
    assert result.outputs_folder is not None
    assert files(result) == {"rank0/large": megabytes * 1_000_000}
    assert digest_of(result.outputs_folder / "rank0" / "large") == result.ranks[0].notes["digest"]
