"""Whatever a script leaves is removed: folders however deep, of whatever mode; and nothing that links name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.node.files import remove_tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def nest(folder: Path, depth: int, name: str = "d") -> None:
    """Make folders within each other, more than a path can name, with a file in each."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_folders_that_lie_deeper_than_a_path_or_a_stack_can_name_are_removed(folder: Path) -> None:
    nest(folder, 1500, name="a name")
    assert remove_tree(folder)
    assert not folder.exists()


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400, 0o500])
def test_folders_of_any_mode_are_removed(folder: Path, mode: int) -> None:
    for name in ("a/b/c", "empty", "a/x"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "a/b/c/file").write_text("x")
    for name in ("a/b/c/file", "a/b/c", "a/b", "a/x", "a", "empty", "."):
        (folder / name).chmod(mode)
    assert remove_tree(folder)
    assert not folder.exists()


def test_what_links_name_stays(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o755)
    (tmp_path / "kept" / "file").write_text("kept")
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(tmp_path / "kept")
    (folder / "sub" / "loop").symlink_to(folder)
    assert remove_tree(folder)
    assert (tmp_path / "kept" / "file").read_text() == "kept"
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert remove_tree(tmp_path / "link")
    assert (tmp_path / "kept" / "file").exists()


def test_pipes_sockets_and_odd_names_are_removed(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "\n\x1b[2J").mkdir()
    (folder / "\n\x1b[2J" / "x").write_text("")
    os.mkdir(os.path.join(os.fsencode(folder), b"\xff\xfe"))
    assert remove_tree(folder)


def test_nothing_is_removed_where_nothing_is(folder: Path) -> None:
    assert remove_tree(folder / "missing")
    (folder / "file").write_text("")
    assert remove_tree(folder / "file")
    assert list(folder.iterdir()) == []
