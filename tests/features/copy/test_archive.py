"""What travels to and from nodes, and that nothing lands elsewhere."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.features.copy.archive import pack_tar, unpack_tar
from tests.golden import golden


def tar_of(*entries: tarfile.TarInfo, content: bytes = b"abc") -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_a_folder_arrives_as_it_was_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.sh").write_text("text")
    (tmp_path / "a" / "b" / "c.sh").chmod(0o755)
    assert unpack_tar(pack_tar(tmp_path / "a", "new", owner=(7, 8)), tmp_path / "there") == []
    arrived = tmp_path / "there" / "b" / "c.sh"
    assert (arrived.read_text(), stat.S_IMODE(arrived.stat().st_mode)) == ("text", 0o755)


def test_a_file_arrives_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 50_000)
    assert unpack_tar(pack_tar(tmp_path / "a", "a"), tmp_path / "b") == []
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_whose_a_packed_file_is_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    archive = io.BytesIO(b"".join(pack_tar(tmp_path / "a", "a", owner=(7, 8))))
    with tarfile.open(fileobj=archive) as tar:
        (packed,) = tar.getmembers()
    assert (packed.uid, packed.gid, packed.uname, packed.mode & 0o060) == (7, 8, "", 0o060)


@pytest.mark.parametrize(
    "odd",
    [
        entry("x/../../out"),
        entry("x/link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("x/hard", tarfile.LNKTYPE, "../../etc/passwd"),
        entry("x/pipe", tarfile.FIFOTYPE),
        entry("x/device", tarfile.CHRTYPE),
    ],
    ids=lambda one: one.name,
)
def test_only_files_and_folders_below_the_target_are_written(tmp_path: Path, odd: tarfile.TarInfo) -> None:
    target = tmp_path / "in" / "target"
    target.parent.mkdir()
    assert unpack_tar([tar_of(entry("x", tarfile.DIRTYPE), odd, entry("x/good")).getvalue()], target) == [odd.name]
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["in", "in/target", "in/target/good"]


def test_a_file_behind_a_link_of_the_same_archive_goes_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    link = entry("x/way", tarfile.SYMTYPE, str(tmp_path / "outside"))
    with pytest.raises(UsageError, match=golden(1)):
        unpack_tar([tar_of(entry("x", tarfile.DIRTYPE), link, entry("x/way/file")).getvalue()], tmp_path / "target")
    assert os.listdir(tmp_path / "outside") == []


def test_what_is_missing_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=golden(1, tmp_path)):
        pack_tar(tmp_path / "none", "none")
