"""Removing what scripts left, however they left it, and finding where they can leave something."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.node import leftovers
from lab.node.users import User


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

    leftovers.remove_tree(str(top))

    assert os.listdir(tmp_path) == ["kept"]
    assert (tmp_path / "kept" / "file").read_text() == "stays"


def test_a_link_is_removed_and_what_it_names_stays(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")

    leftovers.remove_tree(str(tmp_path / "link"))
    leftovers.remove_tree(str(tmp_path / "never-made"))

    assert os.listdir(tmp_path) == ["kept"]


def test_a_folder_is_emptied_and_stays(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").write_text("x")

    leftovers.empty_folder(str(tmp_path))

    assert os.listdir(tmp_path) == []


def test_folders_and_files_that_can_be_changed_are_found_but_not_below_those_that_are_kept(tmp_path: Path):
    for name in ("open", "open/inside", "kept", "kept/inside", "closed", "closed/open"):
        (tmp_path / name).mkdir()
    for name in ("open", "kept", "kept/inside", "closed/open"):
        (tmp_path / name).chmod(0o1777)
    for name, mode in (("closed/open-file", 0o666), ("closed/file", 0o664), ("kept/open-file", 0o666)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    (tmp_path / "closed" / "link").symlink_to("open-file")

    kept, top = {str(tmp_path / "kept")}, tmp_path
    found = dict(leftovers.find_below(str(top), kept, lambda facts: bool(facts.st_mode & 0o002), files=True))

    assert found == {str(top / "closed/open"): True, str(top / "open"): True, str(top / "closed/open-file"): False}


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What somebody left open in an image: a folder with a program, a file, a temporary folder."""
    for name in ("open/program", "etc", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "open" / "program" / "main.py").write_text("x")
    (tmp_path / "open" / "settings").write_text("x")
    (tmp_path / "etc" / "settings").write_text("x")
    (tmp_path / "etc" / "settings").chmod(0o666)
    for name in ("open", "tmp"):
        (tmp_path / name).chmod(0o777)

    def find(kept, user=None, *, files, known=None):
        return dict(leftovers.find_below(str(tmp_path), kept, lambda facts: bool(facts.st_mode & 0o002), files=files))

    monkeypatch.setattr(leftovers, "find_writable", find)
    monkeypatch.setattr(leftovers, "remove_system_v", lambda: None)
    return tmp_path


CHANGES: dict[str, Callable[[Path], object]] = {
    "open/program": lambda at: (at / "open/program").rename(at / "tmp/program"),
    "open/settings": lambda at: (
        (at / "open/settings").unlink(),
        (at / "open/settings").write_text("x"),
        (at / "open/settings").chmod(0o600),
    ),
    "etc/settings": lambda at: (at / "etc/settings").write_text("y"),
}


@pytest.mark.parametrize("what", [*CHANGES])
def test_what_a_run_changed_in_an_image_is_told(image: Path, what: str):
    left = leftovers.Leftovers([], foreign=True)
    left.begin_run(User(20000, 20000))
    CHANGES[what](image)

    assert left.remove(lambda: None) == [f"{image / what} changed"]


def test_what_a_run_left_that_ended_with_its_node_is_removed_when_that_starts_again(image: Path, tmp_path: Path):
    journal = str(tmp_path.with_name("journal"))
    leftovers.Leftovers([], foreign=True, journal=journal).begin_run(User(20000, 20000))
    (image / "tmp/mine").write_text("x")
    (image / "etc/settings").write_text("y")

    again = leftovers.Leftovers([], foreign=True, journal=journal)
    assert again.remove_interrupted() == f"{image / 'etc/settings'} changed"
    assert os.listdir(image / "tmp") == []
    assert again.remove_interrupted() == ""


def test_what_a_run_left_beside_is_removed_and_the_node_is_as_it_was(image: Path):
    left = leftovers.Leftovers([], foreign=True)
    for _ in range(2):
        left.begin_run(User(20000, 20000))
        (image / "open/mine/deep").mkdir(parents=True)
        (image / "tmp/mine").write_text("x")
        (image / "open/program/main.py").read_text()

        assert left.remove(lambda: None) == []
        assert sorted(os.listdir(image / "open")) == ["program", "settings"]
        assert os.listdir(image / "tmp") == []


def test_what_is_known_of_an_image_is_not_looked_for_again_but_what_is_mounted_is(monkeypatch: pytest.MonkeyPatch):
    looked: list[str] = []
    monkeypatch.setattr(leftovers, "_mount_points", lambda: {"/shared", "/dev/shm"})
    monkeypatch.setattr(leftovers, "find_below", lambda top, *_, files: looked.append(top) or ())
    known = ["/tmp", "/shared", "/shared/below", "/sharedlike"]

    found = leftovers.find_writable({"/shared"}, files=False, known=known)

    assert ([*found], looked) == (["/tmp", "/sharedlike"], ["/dev/shm"])
    leftovers.find_writable({"/shared"}, files=False)
    assert looked[1:] == ["/", "/dev/shm"]
