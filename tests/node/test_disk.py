"""Who has written too much to the disk of a node is found; nobody is who only was there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.node import limits as disk
from lab.node.limits import Disk
from lab.node.messages.agent import Claim, Config
from lab.node.users import User, Users

MIB = 1 << 20
ME = User(os.geteuid(), os.getegid())
NOBODY = User(4_000_000, 4_000_000)
Lose = Callable[[int], None]


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Takes free space away from the file system."""
    free = [1000 * MIB]
    monkeypatch.setattr(disk, "_free_bytes", lambda _: free[0])
    monkeypatch.setattr(disk, "_PAUSE_S", 0.0)
    monkeypatch.setattr(disk, "_PART_OF_THE_TIME", 0)
    monkeypatch.setattr(disk, "_NEARLY_FULL_BYTES", 100 * MIB)

    def lose(size: int) -> None:
        free[0] -= size

    return lose


def watch(folder: Path, *users: User) -> Disk:
    return Disk(2 * MIB, [str(folder), str(folder), "/dev/shm"], users or (ME,), alone=False)


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_files_count_once_wherever_they_are_and_whatever_they_are_called(disk_folder: Path, lose: Lose) -> None:
    watched = watch(disk_folder)
    write(disk_folder / "one", MIB)
    os.link(disk_folder / "one", disk_folder / "same")
    (disk_folder / "link").symlink_to("one")
    lose(3 * MIB)
    assert watched.excess() is None

    write(disk_folder / "deep" / "er" / "two", 2 * MIB)
    found = watched.excess()

    assert found is not None
    assert list(found) == [ME.uid]
    assert 3 * MIB <= found[ME.uid] < 4 * MIB


def test_a_file_with_nothing_in_it_takes_no_disk(disk_folder: Path, lose: Lose) -> None:
    watched = watch(disk_folder)
    with (disk_folder / "large").open("wb") as file:
        file.truncate(1 << 40)
    lose(3 * MIB)

    assert watched.excess() is None


def test_what_was_there_before_and_what_others_write_is_nobodys_fault(disk_folder: Path, lose: Lose) -> None:
    write(disk_folder / "before", 4 * MIB)
    while time.clock_gettime(disk.CLOCK_OF_FILES) <= (disk_folder / "before").stat().st_ctime:
        continue
    watched = watch(disk_folder, NOBODY)
    write(disk_folder / "meanwhile", 4 * MIB)
    lose(10 * MIB)

    assert watched.excess() is None


def test_nothing_is_looked_for_while_there_is_as_much_room_as_before(
    disk_folder: Path, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watch(disk_folder)
    monkeypatch.setattr(disk, "_everything_in", lambda _: pytest.fail("it looked"))
    write(disk_folder / "one", 4 * MIB)
    lose(2 * MIB)

    assert watched.excess() is None


def test_where_the_disk_is_nearly_full_and_nobody_can_be_told_there_is_an_excess_of_nobodys(
    disk_folder: Path, lose: Lose
) -> None:
    watched = watch(disk_folder)
    lose(950 * MIB)

    assert watched.excess() == {}


def test_who_was_ended_for_it_is_not_looked_at_again(disk_folder: Path, lose: Lose) -> None:
    watched = watch(disk_folder)
    write(disk_folder / "one", 4 * MIB)
    lose(4 * MIB)
    assert watched.excess()

    watched.forgive(ME.uid)

    assert watched.excess() is None


def test_open_files_without_a_name_count_for_who_has_them_open(disk_folder: Path) -> None:
    with (disk_folder / "gone").open("wb") as file:
        file.write(b"x" * MIB)
        file.flush()
        (disk_folder / "gone").unlink()
        (disk_folder / "there").write_bytes(b"x")
        with (disk_folder / "there").open("rb"):
            devices = {disk_folder.stat().st_dev}
            assert disk._nameless_bytes(ME.uid, devices) >= MIB
            assert disk._nameless_bytes(ME.uid, set()) == 0
            assert disk._nameless_bytes(NOBODY.uid, devices) == 0


def test_a_place_that_is_full_is_told_once(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"blocks": 10, "files": 10}

    def facts(_: str) -> SimpleNamespace:
        return SimpleNamespace(
            f_blocks=256, f_frsize=4096, f_bavail=free["blocks"], f_files=100, f_favail=free["files"]
        )

    monkeypatch.setattr(os, "statvfs", facts)
    for what in free:
        told: list[Any] = []
        claim, config = Claim("r", "me", 60.0), Config("node0", "/", container=True, import_root="", strict=True)
        users = Users(claim, container=False)
        limits = disk.Limits(claim, config, told.append, users, [str(disk_folder), str(disk_folder)])
        limits.start([0])
        limits.report_full(now=True)
        free[what] = 0
        limits.report_full()  # four times a second
        assert told == []
        limits.report_full(now=True)
        limits.report_full(now=True)
        assert [(one.what, one.limit) for one in told] == [(f"files in {disk_folder}", MIB)]
        free[what] = 10
