"""What is shipped of a folder: its files, links that stay in it, and nothing from outside."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import zlib
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.run.ship import Parcel, pack_folder
from tests.golden import golden


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    path.mkdir()
    (path / "main.py").write_text("print()\n")
    return path


def packed(parcel: Parcel) -> dict[str, str]:
    """Name -> where a link leads, or `file`."""
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(parcel.archive))) as archive:
        return {entry.name: entry.linkname or "file" for entry in archive}


def unpacked(parcel: Parcel, where: Path) -> Path:
    where.mkdir()
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(parcel.archive))) as archive:
        archive.extractall(where)
    return where


def test_links_within_the_folder_stay_links(folder: Path, tmp_path: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "x.txt").write_text("x")
    (folder / "relative").symlink_to("data/x.txt")
    (folder / "absolute").symlink_to(folder / "data" / "x.txt")
    (folder / "data" / "up").symlink_to("../main.py")
    (folder / "common").symlink_to("data")
    (folder / "around").symlink_to("relative")

    parcel = pack_folder(folder)

    assert packed(parcel) == {
        "main.py": "file",
        "data/x.txt": "file",
        "data/up": "../main.py",
        "relative": "data/x.txt",
        "absolute": "data/x.txt",
        "around": "data/x.txt",
        "common": "data",
    }
    assert parcel.warning == ""
    there = unpacked(parcel, tmp_path / "there")
    assert (there / "common" / "x.txt").read_text() == (there / "absolute").read_text() == "x"


def test_links_that_lead_out_stay_behind_and_the_first_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (folder / "a").symlink_to(tmp_path / "secret")
    (folder / "b").symlink_to("../secrets")
    (folder / "c").symlink_to("/")
    (folder / "d").symlink_to("/proc/self/environ")
    (folder / "e").symlink_to("a")
    (folder / "f").symlink_to("../s/../secret")
    (folder / "g").symlink_to("/nowhere/at/all")

    parcel = pack_folder(folder)

    assert packed(parcel) == {"main.py": "file"}
    assert [one.split()[0] for one in parcel.left_out] == list("abcdefg")
    assert parcel.warning == (golden(1, tmp_path / "secret"))


def test_folders_that_link_to_each_other_are_no_loop(folder: Path) -> None:
    for name in "xyz":
        (folder / name).mkdir()
        (folder / name / "self").symlink_to("self")
        for other in "xyz":
            (folder / name / f"to-{other}").symlink_to(f"../{other}")
    assert len(packed(pack_folder(folder))) == 1 + 3 * 4


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    (folder / "inside").symlink_to("main.py")
    assert packed(pack_folder(tmp_path / "link")) == {"main.py": "file", "inside": "main.py"}


def test_pipes_and_sockets_are_left_out_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        parcel = pack_folder(folder)
    assert packed(parcel) == {"main.py": "file"}
    assert parcel.left_out == (golden(1), golden(2))


def test_folders_that_lie_too_deep_are_refused(folder: Path) -> None:
    deep = folder.joinpath(*["d"] * 101)
    deep.mkdir(parents=True)
    with pytest.raises(UsageError, match=golden(1)):
        pack_folder(folder)


def test_hidden_folders_stay_behind_as_links_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / ".venv").symlink_to(tmp_path / "elsewhere")
    (folder / ".env").write_text("A=1")
    parcel = pack_folder(folder)
    assert packed(parcel) == {"main.py": "file", ".env": "file"}
    assert parcel.left_out == ()


def test_what_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match=golden(1)):
        pack_folder(folder)


def test_data_in_the_folder_stays_behind(folder: Path) -> None:
    (folder / "data" / "mnist").mkdir(parents=True)
    (folder / "data" / "mnist" / "a").write_text("")
    (folder / "data" / "b").write_text("")
    (folder / "link").symlink_to(folder / "data" / "mnist")
    names = packed(pack_folder(folder, [folder / "link"]))
    assert "data/b" in names
    assert not [name for name in names if "mnist" in name]


def test_what_labignore_names_stays_behind(folder: Path) -> None:
    for name in ("old.ckpt", "old/main.py", "lib/old.py", "lib/notes/a.txt", "lib/notes.txt", "notes"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".labignore").write_text("*.ckpt  # large\n\nold*/\nlib/notes/\n.labignore\n")

    assert packed(pack_folder(folder)).keys() == {"main.py", "lib/old.py", "lib/notes.txt", "notes"}


def test_the_first_lesson_ships_nothing_of_the_topics_beside_it() -> None:
    library = Path(__file__).parents[2] / "scenarios"

    assert packed(pack_folder(library)).keys() == {"scatter.py", "scatter.yaml"}
