"""What was handed in is found by the names of those who did; what is put into nodes is theirs and the assignment's."""

from __future__ import annotations

import os
import stat
import tempfile
import unicodedata
import zipfile
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.features.grade import submissions as stage
from lab.features.grade.grades import flatten_text
from lab.features.grade.submissions import (
    SUBMISSION_LIMITS,
    SizeLimits,
    Submission,
    find_submissions,
    stage_submission,
    temporary_folder,
    unzip_file,
)
from lab.spec.load import load_scenario
from lab.spec.scenario import Scenario
from tests.golden import golden


def put(path: Path, text: str = "print()\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def assignment(tmp_path: Path) -> Scenario:
    folder = tmp_path / "assignment"
    put(folder / "ring.yaml", "script: ring.py\nexpect: {check: 'verify.py:check'}\ngrade: {files: [helper.py, in]}\n")
    put(folder / "ring.py", "SOLUTION = 1\n")
    put(folder / "verify.py", "def check(results): pass\n")
    put(folder / "helper.py", "OURS = 1\n")
    put(folder / "in" / "a.txt", "1")
    return load_scenario(folder / "ring.yaml")


def zipped(path: Path, **files: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def shipped(path: Path, assignment: Scenario) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a submission is run with, and what is told of it."""
    with stage_submission(Submission(name="x", path=path), assignment) as (script, told):
        folder = script.parent
        found = {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}
    assert not folder.exists()
    return found, told


OURS = {"helper.py": "OURS = 1\n", "in/a.txt": "1"}


def test_submissions_are_files_folders_and_zips_by_name(tmp_path: Path) -> None:
    put(tmp_path / "bob.py")
    put(tmp_path / "alice" / "ring.py")
    zipped(tmp_path / "carol.zip", a="")
    put(tmp_path / "Jane Doe_123_assignsubmission_file_" / "ring.py")
    put(tmp_path / "dan.py")
    put(tmp_path / "dan" / "x.py")
    put(tmp_path / "notes.txt")
    put(tmp_path / ".hidden" / "ring.py")
    put(tmp_path / "__MACOSX" / "ring.py")
    found = find_submissions(tmp_path)
    assert [one.name for one in found] == ["Jane Doe_123", "alice", "bob", "carol", "dan", "dan.py"]
    assert not any(one.refusal for one in found)


def test_links_are_refused_and_names_that_are_no_text_are_shown(tmp_path: Path) -> None:
    (tmp_path / "eve.py").symlink_to("/etc/passwd")
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.py")))
    names = {one.name: one.refusal for one in find_submissions(tmp_path)}
    assert names == {"eve": golden(1), "\\xff": ""}


def test_the_files_of_the_assignment_are_no_submissions(tmp_path: Path, assignment: Scenario) -> None:
    folder = assignment.script.parent
    put(folder / "alice.py")
    names = [folder / name for name in ("ring.yaml", "ring.py", "verify.py", "helper.py", "in")]
    assert [one.name for one in find_submissions(folder, names)] == ["alice"]
    put(tmp_path / "bob.py")
    assert [one.name for one in find_submissions(tmp_path, names)] == ["bob"], "the folder that holds them is none"


def test_a_folder_without_submissions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no submissions"):
        find_submissions(tmp_path)


def test_a_submission_gets_what_it_hands_in_and_what_is_given_to_all(tmp_path: Path, assignment: Scenario) -> None:
    assert shipped(put(tmp_path / "alice.py", "A = 1\n"), assignment) == ({"ring.py": "A = 1\n", **OURS}, ())
    put(tmp_path / "bob" / "ring.py", "B = 1\n")
    put(tmp_path / "bob" / "own" / "module.py", "C = 1\n")
    assert shipped(tmp_path / "bob", assignment)[0] == {"ring.py": "B = 1\n", "own/module.py": "C = 1\n", **OURS}


def test_what_is_given_to_all_cannot_be_replaced(tmp_path: Path, assignment: Scenario) -> None:
    put(tmp_path / "eve" / "ring.py", "E = 1\n")
    put(tmp_path / "eve" / "helper.py", "MINE = 1\n")
    put(tmp_path / "eve" / "in", "a file in the way")
    found, told = shipped(tmp_path / "eve", assignment)
    assert found == {"ring.py": "E = 1\n", **OURS}
    assert told == (
        golden(1),
        golden(2),
    )
    (tmp_path / "eve" / "in").unlink()
    put(tmp_path / "eve" / "in" / "a.txt", "mine")
    put(tmp_path / "eve" / "in" / "more.txt", "mine")
    assert shipped(tmp_path / "eve", assignment)[0] == {"ring.py": "E = 1\n", **OURS}


def test_links_devices_and_what_is_hidden_are_not_taken(tmp_path: Path, assignment: Scenario) -> None:
    put(tmp_path / "eve" / "ring.py", "E = 1\n")
    (tmp_path / "eve" / "stolen.py").symlink_to("/etc/passwd")
    (tmp_path / "eve" / "etc").symlink_to("/etc")
    os.mkfifo(tmp_path / "eve" / "pipe")
    put(tmp_path / "eve" / ".labignore", "helper.py\n")
    put(tmp_path / "eve" / ".git" / "config", "x")
    found, told = shipped(tmp_path / "eve", assignment)
    assert found == {"ring.py": "E = 1\n", **OURS}
    assert len(told) == 1
    for name in ("stolen.py", "etc", "pipe"):
        assert golden(1, name) in told[0]


def test_the_only_script_of_a_folder_is_taken_for_the_one_that_is_asked_for(
    tmp_path: Path, assignment: Scenario
) -> None:
    put(tmp_path / "bob" / "project" / "main.py", "B = 1\n")
    found, told = shipped(tmp_path / "bob", assignment)
    assert found == {"ring.py": "B = 1\n", **OURS}
    assert told == (golden(1),)
    put(tmp_path / "bob" / "project" / "other.py")
    with pytest.raises(UsageError, match=golden(2)):
        shipped(tmp_path / "bob", assignment)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="it is empty"):
        shipped(tmp_path / "empty", assignment)


def test_a_zip_file_is_as_good_as_a_folder_also_within_one(tmp_path: Path, assignment: Scenario) -> None:
    zipped(tmp_path / "a.zip", **{"ring/ring.py": "A = 1\n", "__MACOSX/ring/._ring.py": "x", "ring/.DS_Store": "x"})
    assert shipped(tmp_path / "a.zip", assignment) == ({"ring.py": "A = 1\n", **OURS}, ())
    (tmp_path / "b").mkdir()
    os.replace(tmp_path / "a.zip", tmp_path / "b" / "a.zip")
    assert shipped(tmp_path / "b", assignment) == ({"ring.py": "A = 1\n", **OURS}, ())


@pytest.mark.parametrize("name", ["../x.py", "/etc/x", "a/../../x", "c:/x", "a\\..\\x", "x\nring.py"])
def test_a_zip_file_names_nothing_outside_of_itself(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.zip", **{name: "x"})
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=golden(1)):
        unzip_file(path, tmp_path / "out", SUBMISSION_LIMITS)
    assert list((tmp_path / "out").iterdir()) == []


def test_links_in_a_zip_file_are_left_out(tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    (tmp_path / "out").mkdir()
    assert unzip_file(tmp_path / "a.zip", tmp_path / "out", SUBMISSION_LIMITS) == [golden(1)]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_zip_bomb_is_given_up_when_it_is_larger_than_allowed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 3_000_000)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    size = (3_000_000).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:  # it states that it is small
        data[at : at + 4] = (10).to_bytes(4, "little")
    (tmp_path / "lies.zip").write_bytes(data)
    for name, why in (("a", r"more than 1 MiB"), ("lies", "more than 1 MiB|not a zip file, or it is damaged")):
        out = tmp_path / f"{name}-out"
        out.mkdir()
        with pytest.raises(UsageError, match=why):
            unzip_file(tmp_path / f"{name}.zip", out, SizeLimits(bytes=1 << 20, files=10))
        assert sum(path.stat().st_size for path in out.rglob("*")) <= 1 << 20
    many = zipped(tmp_path / "many.zip", **{str(number): "" for number in range(11)})
    with pytest.raises(UsageError, match="more than 10 files"):
        unzip_file(many, out, SizeLimits(bytes=1 << 20, files=10))


def test_what_is_no_zip_file_or_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    good = zipped(tmp_path / "a.zip", a="x" * 1000).read_bytes()
    damaged = {"text": b"print()", "cut": good[:100], "empty": b"", "twisted": good.replace(b"x" * 10, b"y" * 10)}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=golden(1)):
            unzip_file(tmp_path / name, tmp_path / "out", SUBMISSION_LIMITS)
    with zipfile.ZipFile(tmp_path / "lzma.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", "x")
    with pytest.raises(UsageError, match="unsupported compression"):
        unzip_file(tmp_path / "lzma.zip", tmp_path / "out", SUBMISSION_LIMITS)


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path, assignment: Scenario) -> None:
    huge = put(tmp_path / "huge.py")
    os.truncate(huge, 1 << 40)
    with pytest.raises(UsageError, match=golden(1)):
        shipped(huge, assignment)
    many = tmp_path / "many"
    for number in range(SUBMISSION_LIMITS.files + 1):
        put(many / f"{number}")
    with pytest.raises(UsageError, match="more than 1,000 files"):
        shipped(many, assignment)


def test_what_a_dead_process_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    names = {f"lab-grade-{child}-x": False, f"lab-grade-{os.getppid()}-x": True, "lab-grade-notes-x": True}
    for name in names:
        (tmp_path / name / "work").mkdir(parents=True)
    with temporary_folder() as own:
        assert own.is_dir()
        assert {name: (tmp_path / name).exists() for name in names} == names
    assert not own.exists()


def test_a_folder_that_its_owner_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "lab-grade-1234-x"
    left.mkdir()
    monkeypatch.setattr(stage, "read_stat", lambda pid: left.rmdir())
    with temporary_folder() as own:
        assert own.is_dir()
    assert not left.exists()


@pytest.mark.parametrize(
    "names",
    [
        ["a.py", "a.zip", "a"],
        ["Alice.py", "alice.zip", "ALICE"],
        ["e\u0301.py", "\u00e9.zip", "\u00c9"],
        ["a b.py", "a  b.zip", "a\tb"],
        ["\ufb01.py", "fi.zip"],
        ["x_assignsubmission_file_", "x_assignsubmission_onlinetext_", "x.py"],
        ["a.py", "a", "a.zip", "A.PY", "a.zip.zip"],
        ["STRASSE.py", "stra\u00dfe.zip"],
        ["\udcff" * 120 + "b" + "\udcff" * 100 + ".py", "\udcff" * 120 + "d" + "\udcff" * 100 + ".py"],
        ["a (2).py", "a.py", "A.py", "a.PY"],
        ["\x01.py", "\x01.zip", "\\x01"],
        ["=a.py", "'=a.py"],
    ],
    ids=range(12),
)
def test_no_two_names_read_alike_and_who_is_called_otherwise_is_told(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        path = tmp_path / name
        put(path if path.suffix else path / "ring.py")

    found = find_submissions(tmp_path)

    shown = [unicodedata.normalize("NFKC", flatten_text(one.name)).casefold() for one in found]
    assert len(set(shown)) == len(names), shown
    assert all(one.name == flatten_text(one.name) and one.name.isprintable() for one in found)
    assert any(repr(one.name) in one.message for one in found)
    again = find_submissions(tmp_path)
    assert again == found


def test_whose_name_is_taken_is_told_on_their_page(tmp_path: Path, assignment: Scenario) -> None:
    one = Submission(name="a", path=put(tmp_path / "a.py"), message="2 submissions have similar names")
    with stage_submission(one, assignment) as (_, told):
        assert told == (golden(1),)
