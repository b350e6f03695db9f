"""Removing what scripts left, however they left it, and finding where they can leave something."""

from __future__ import annotations

import os
from pathlib import Path

from lab.node import strays


def test_a_tree_is_removed_however_deep_and_whatever_is_in_it(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("stays")
    top = tmp_path / "top"
    (top / "wide").mkdir(parents=True)
    for number in range(20):
        (top / "wide" / f"{number}").mkdir()
        (top / "wide" / f"{number}" / "file").write_text("x")
    (top / "link").symlink_to(tmp_path / "kept")
    (top / "wide" / "broken").symlink_to("/no/such/file")
    os.mkfifo(top / "pipe")
    closed = top / "closed" / "deeper"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    closed.chmod(0)
    closed.parent.chmod(0)
    at = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("x", dir_fd=at)
        below = os.open("x", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)

    strays.remove_tree(str(top))

    assert os.listdir(tmp_path) == ["kept"]
    assert (tmp_path / "kept" / "file").read_text() == "stays"


def test_a_link_is_removed_and_what_it_names_stays(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")

    strays.remove_tree(str(tmp_path / "link"))
    strays.remove_tree(str(tmp_path / "never-made"))

    assert os.listdir(tmp_path) == ["kept"]


def test_a_folder_is_emptied_and_stays(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").write_text("x")

    strays.empty(str(tmp_path))

    assert os.listdir(tmp_path) == []


def test_folders_that_anybody_may_write_to_are_found_but_not_below_those_that_are_kept(tmp_path: Path):
    for name in ("open", "open/inside", "kept", "kept/inside", "closed", "closed/open"):
        (tmp_path / name).mkdir()
    for name in ("open", "kept", "kept/inside", "closed/open"):
        (tmp_path / name).chmod(0o1777)

    found = strays.writable_below(str(tmp_path), {str(tmp_path / "kept")})

    assert sorted(found) == [str(tmp_path / "closed" / "open"), str(tmp_path / "open")]
