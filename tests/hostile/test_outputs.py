"""Files that hostile scripts leave: what of them comes back to this machine, and how it looks here."""

from __future__ import annotations

import html
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.cli.main import main
from lab.node.messages.agent import Made, MadeFile, Piece
from lab.run import ship
from lab.run.ship import LIMIT_BYTES, Outputs
from tests.golden import golden
from tests.hostile.test_pages import assert_nothing_acts, assert_page_is_harmless

pytestmark = pytest.mark.half

MIB = 1 << 20
Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
NEVER = ("shadow", "root", "up", "loop", "dangling", "passwd", "pipe", "socket", "null", "disk", "huge", "d64")
"""Names of what must not come back."""
TRIED = 24
"""So many attacks are made at least, of which a script in a container may make all but devices."""


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def assert_is_what_the_record_says(result: Result) -> dict[str, os.stat_result]:
    """The files on this machine are those of the result, plain, and within the limit; returns them."""
    folder = result.outputs_folder
    assert folder is not None
    found = {}
    for path in folder.rglob("*"):
        facts, name = path.lstat(), str(path.relative_to(folder))
        assert stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode), name
        allowed = (0o755,) if stat.S_ISDIR(facts.st_mode) else (0o644, 0o755)
        assert stat.S_IMODE(facts.st_mode) in allowed, (name, oct(facts.st_mode))
        assert (facts.st_uid, facts.st_gid) == (os.geteuid(), os.getegid()), name
        assert os.listxattr(path, follow_symlinks=False) == [], name
        if stat.S_ISREG(facts.st_mode):
            assert facts.st_nlink == 1, name
            found[name] = facts
    assert {one.path: one.bytes for one in result.outputs} == {name: facts.st_size for name, facts in found.items()}
    assert sum(facts.st_blocks * 512 for facts in found.values()) <= LIMIT_BYTES + MIB * 16
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]
    return found


def assert_attacks_came_to_nothing(result: Result, ranks: int) -> None:
    assert result.passed, result.reason
    assert result.path is not None
    found = assert_is_what_the_record_says(result)
    for rank in range(ranks):
        assert len(result.ranks[rank].notes["made"]) >= TRIED, result.ranks[rank].notes
        own = {name for name in found if f"/of{rank}/" in f"/{name}"}
        parts = {part for name in own for part in name.split("/")}
        never = {*NEVER} - ({"passwd"} if result.engine == "local" else set())  # there it is one of its own files
        assert not parts & never, parts & never
        where = f"rank{rank}/of{rank}"
        assert stat.S_IMODE(found[f"{where}/setuid"].st_mode) == 0o755
        assert stat.S_IMODE(found[f"{where}/program"].st_mode) == 0o755
        assert {stat.S_IMODE(found[f"{where}/{name}"].st_mode) for name in ("open", "own", "own again")} == {0o644}
        sparse = found.get(f"{where}/sparse")
        if sparse is not None:
            assert (sparse.st_size, sparse.st_blocks * 512 <= MIB) == (16 * MIB, True)
        assert any(told.startswith(f"{where}/huge: its 5.37 GB exceed") for told in result.outputs_left_out)
        assert found[f"{where}/large"].st_size == 70 * MIB
        for letter in "ab":
            long = result.path / "files" / where / ("n" * 254 + letter)
            assert not long.exists() or long.read_text() == letter
    assert Result.load(result.path) == result


def assert_views_are_harmless(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    assert result.path is not None
    capsys.readouterr()
    assert main(["show", str(result.path)]) == 0
    assert main(["report", str(result.path)]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert_nothing_acts(line)
    page = (result.path / "report.html").read_text()
    assert_page_is_harmless(page)
    assert "pwned" in html.unescape(page)


def test_of_all_that_a_script_leaves_only_plain_files_come_back(
    run: Run, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run("outputs.py", nodes=2, nproc_per_node=1, timeout_s=90.0)

    assert_attacks_came_to_nothing(result, 2)
    assert result.outputs_folder is not None
    assert (result.outputs_folder / "rank0" / "clash").is_file()
    assert (result.outputs_folder / "rank1" / "clash" / "inside").is_file()
    assert_views_are_harmless(result, capsys)


@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_a_strict_cluster_gives_back_no_more(run: Run, make_cluster: MakeCluster) -> None:
    result = run("outputs.py", on=make_cluster(nodes=2, strict=True), timeout_s=90.0)

    assert_attacks_came_to_nothing(result, 2)


@pytest.mark.local_first
def test_of_files_without_number_some_come_back_and_the_rest_are_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ship, "MOST_FILES", 2000)
    result = run("outputs.py", "many", nodes=1, timeout_s=60.0)

    assert result.passed, result.reason
    assert len(assert_is_what_the_record_says(result)) == 2000
    assert result.outputs_left_out == (golden(1),)


def test_a_link_in_the_place_of_the_folder_gives_back_nothing(run: Run) -> None:
    result = run("outputs.py", "replace", nodes=1)

    assert result.passed, result.reason
    assert result.ranks[0].notes["made"] == ["replace_folder"]
    assert result.outputs == ()


@pytest.mark.local_first
def test_links_in_a_folder_that_was_asked_for_lead_no_file_out_of_it(run: Run, tmp_path: Path) -> None:
    outside, here = tmp_path / "outside", tmp_path / "here"
    outside.mkdir()
    here.mkdir()
    (outside / "mine").write_text("mine")
    (here / "rank0").symlink_to(outside)
    (here / "rank1").mkdir()
    (here / "rank1" / "of1").symlink_to(outside)

    result = run("outputs.py", nodes=2, timeout_s=90.0, outputs=here)

    assert result.passed, result.reason
    assert os.listdir(outside) == ["mine"]
    refused = [told for told in result.outputs_left_out if "it cannot be written" in told]
    assert any(told.startswith("rank0/of0/open: ") for told in refused), refused[:3]
    assert any(told.startswith("rank1/of1/open: ") for told in refused), refused[:3]


# -- what a node says that a script has in its hands, as on the local engine


def told(path: str, rank: int = 0, size: int = 3, fingerprint: str = "f") -> MadeFile:
    return MadeFile(path, rank, size, fingerprint)


@pytest.mark.parametrize(
    "path", ["../out", "/tmp/lab-evil", "a/../../out", "a//b", "", ".", "a\0b", "x" * 2000, "a/" * 600]
)
def test_a_path_that_leads_elsewhere_is_left_out(tmp_path: Path, path: str) -> None:
    outputs = Outputs(tmp_path / "in" / "files")
    outputs.handle_message("node0", Made("r", (told(path), told("good"))))
    for node, paths in outputs.choose().items():
        for one in (*paths, path):
            outputs.handle_message(node, Piece("r", one, b"abc", last=True))
    outputs.close()
    assert [one.path for one in outputs.fetched] == ["rank0/good"]
    assert len(outputs.left_out) == 1
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()) == [
        "in/files/rank0/good"
    ]


def test_a_node_that_sends_more_than_it_told_is_cut_off(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "files")
    outputs.handle_message("node0", Made("r", (told("a"),)))
    outputs.choose()
    for _ in range(10):
        outputs.handle_message("node0", Piece("r", "a", bytes(MIB), last=False))
    outputs.handle_message("node0", Piece("r", "a", b"", last=True))
    outputs.close()
    assert outputs.left_out == [golden(1)]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_is_told_twice_comes_once(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "files")
    outputs.handle_message("node0", Made("r", (told("a", fingerprint="1"), told("a", fingerprint="2"))))
    for node, paths in outputs.choose().items():
        for one in paths:
            outputs.handle_message(node, Piece("r", one, b"abc", last=True))
    outputs.close()
    assert [one.path for one in outputs.fetched] == ["rank0/a"]
    assert outputs.left_out == []


def test_names_without_end_take_no_memory(tmp_path: Path) -> None:
    warned: list[str] = []
    outputs = Outputs(tmp_path / "files", warned.append)
    for node in range(30):
        made = tuple(told(f"../{'n' * 900}{number}") for number in range(5000))
        outputs.handle_message(f"node{node}", Made("r", made))
    assert not any(outputs.choose().values())
    outputs.close()
    assert len(outputs.left_out) == 1001
    assert sum(map(len, outputs.left_out)) < 2 * MIB
    assert outputs.left_out[-1] == golden(1)
    assert warned == [golden(2)]


def test_a_disk_that_is_nearly_full_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    monkeypatch.setattr(ship, "_SPARE_BYTES", free - 10)
    monkeypatch.setattr(ship, "_SPARE_PART", 1)
    outputs = Outputs(tmp_path / "files")
    outputs.handle_message("node0", Made("r", (told("a", size=MIB), told("b", size=3 * MIB), told("c", size=1 << 40))))
    assert not outputs.choose()["node0"]
    assert [one.partition(":")[0] for one in outputs.left_out] == ["rank0/a", "rank0/b", "rank0/c"]


def test_two_long_names_that_begin_alike_are_two_files(tmp_path: Path) -> None:
    names = ["n" * 249 + letter for letter in "ab"]
    outputs = Outputs(tmp_path / "files")
    outputs.handle_message("node0", Made("r", tuple(told(name, size=1, fingerprint=name) for name in names)))
    outputs.choose()
    for last in (False, True):
        for name in names:
            outputs.handle_message("node0", Piece("r", name, b"" if last else name[-1].encode(), last=last))
    outputs.close()
    for name in names:
        assert (tmp_path / "files" / "rank0" / name).read_text() == name[-1]
