"""Copies for a check: regular files within limits; what is left out has a reason."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.node.outputs import Staging, StagingLimits
from tests.golden import golden

LIMITS = StagingLimits(file_bytes=1000, total_bytes=2000, files=5, depth=3)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def stage(source: Path, *, owners: set[int] | None = None, limits: StagingLimits = LIMITS) -> Staging:
    place: Any = SimpleNamespace(folder=str(source), staged=str(source.parent / "staged"))
    staging = Staging(place, owners, limits, lambda: None)
    staging.copy()
    return staging


def copied(source: Path) -> dict[str, str]:
    top = source.parent / "staged"
    return {path.relative_to(top).as_posix(): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_regular_files_are_copied_whatever_their_modes(source: Path) -> None:
    (source / "a").write_text("1")
    (source / "in" / "it").mkdir(parents=True)
    (source / "in" / "it" / "b").write_text("2")
    os.chmod(source / "in" / "it" / "b", 0o4777)

    staging = stage(source)

    assert copied(source) == {"a": "1", "in/it/b": "2"}
    assert staging.left_out == {}
    assert (source.parent / "staged" / "in" / "it" / "b").stat().st_mode & 0o7777 == 0o644


def test_what_is_no_regular_file_is_left_out(source: Path) -> None:
    os.mkfifo(source / "pipe")
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "socket"))

    staging = stage(source)

    assert copied(source) == {}
    assert staging.left_out == {
        "pipe": golden(1), "link": golden(2), "folder": golden(2), "socket": golden(3),
    }  # fmt: skip


def test_a_link_in_the_place_of_the_folder_is_not_followed(source: Path) -> None:
    source.rmdir()
    source.symlink_to("/etc")

    staging = stage(source)

    assert copied(source) == {}
    assert list(staging.left_out) == ["."]


def test_files_are_copied_as_long_as_there_is_room_those_in_the_highest_folders_first(source: Path) -> None:
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "small").write_text("x")
    (source / "deep" / "er" / "small").write_text("x")
    (source / "large").write_text("x" * 1001)
    for number in range(3):
        (source / f"half{number}").write_text("x" * 900)

    staging = stage(source)

    assert set(copied(source)) == {"half0", "half1", "deep/small", "deep/er/small"}
    assert set(staging.left_out) == {"large", "half2"}


def test_of_too_many_files_the_first_are_copied_and_the_number_is_told(source: Path) -> None:
    for number in range(9):
        (source / f"{number}").write_text("")

    staging = stage(source)

    assert len(copied(source)) == 5
    assert staging.left_out == {".": golden(1)}


def test_what_lies_too_deep_is_left_out(source: Path) -> None:
    (source / "1" / "2" / "3" / "4").mkdir(parents=True)
    (source / "1" / "2" / "3" / "in").write_text("")
    (source / "1" / "2" / "3" / "4" / "out").write_text("")

    staging = stage(source)

    assert set(copied(source)) == {"1/2/3/in"}
    assert staging.left_out == {"1/2/3/4": golden(1)}


def test_a_file_of_somebody_else_is_left_out(source: Path) -> None:
    (source / "mine").write_text("")

    staging = stage(source, owners={os.getuid() + 1})

    assert copied(source) == {}
    assert staging.left_out == {"mine": golden(1)}


def test_a_sparse_file_counts_as_large_as_it_says(source: Path) -> None:
    with open(source / "sparse", "w") as file:
        os.truncate(file.fileno(), 1 << 40)

    assert list(stage(source).left_out) == ["sparse"]
