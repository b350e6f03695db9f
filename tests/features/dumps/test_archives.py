"""Dumps in archives, and those of all ranks in one file: the same record as from a folder, within limits."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lab.errors import RecordError
from lab.features.dumps.dump import DEFAULT, Dumps
from tests.features.dumps.made import dump, entry, waiting
from tests.features.dumps.test_import import hung, imported

pytestmark = pytest.mark.unit


def data_of(ranks: int = 3) -> dict[int, dict[str, Any]]:
    return {
        rank: dump([entry(0), entry(1), *([waiting(2)] if rank != 1 else [])], range(ranks)) for rank in range(ranks)
    }


def check(path: Path) -> None:
    """The job is the one in which rank 1 is missing."""
    _, result, _ = imported(path)
    assert (result.verdict, result.culprit.rank if result.culprit else None, len(result.ranks)) == ("hung", 1, 3)


def pack(path: Path, files: dict[str, bytes], mode: Any = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_each_file_may_be_compressed(tmp_path: Path) -> None:
    folder = hung(3, 1, tmp_path / "dumps")
    for file in [*folder.iterdir()]:
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    check(folder)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_tar_is_read_whatever_folders_its_names_have(mode: str, tmp_path: Path) -> None:
    names = ["rank_0", "../../etc/rank_1", "/a/b/rank_2"]
    files = {name: pickle.dumps(data, protocol=2) for name, data in zip(names, data_of().values(), strict=True)}
    check(pack(tmp_path / "dumps.tar", {**files, "notes.txt": b"hello"}, mode))
    assert not (tmp_path.parent / "etc").exists()


@pytest.mark.parametrize("by", ["name", "list", "rank"])
def test_one_json_file_may_hold_all_ranks(by: str, tmp_path: Path) -> None:
    data = data_of()
    forms: dict[str, Any] = {
        "name": {f"rank{rank}.json": one for rank, one in data.items()},
        "list": [*data.values()],
        "rank": [{**data[rank], "rank": rank} for rank in (2, 0, 1)],
    }
    (tmp_path / "all.json").write_text(json.dumps(forms[by]))
    check(tmp_path / "all.json")


def test_the_page_of_a_debug_server_is_read(tmp_path: Path) -> None:
    parts = [
        f"<h2>Rank {rank}: http://h:{rank}</h2>\n <pre>{json.dumps(one, indent=2)}</pre>"
        for rank, one in data_of().items()
    ]
    (tmp_path / "page.html").write_text("<!doctype html>" + "\n".join(parts))
    check(tmp_path / "page.html")


def test_what_grows_beyond_the_limit_or_is_damaged_is_refused(tmp_path: Path) -> None:
    zeros = gzip.compress(bytes(DEFAULT.size_bytes + (8 << 20)), compresslevel=1)
    (tmp_path / "rank_0.gz").write_bytes(zeros)
    with pytest.raises(RecordError, match="holds more than 64 MiB of dumps"):
        Dumps(tmp_path / "rank_0.gz")
    with pytest.raises(RecordError, match="larger than 64 MiB"):
        Dumps(tmp_path)
    (tmp_path / "rank_0.gz").write_bytes(zeros[:-100])
    with pytest.raises(RecordError, match=r"larger than 64 MiB|cannot be decompressed"):
        Dumps(tmp_path)
    many = {f"rank_{at}.gz": gzip.compress(bytes(33 << 20), compresslevel=1) for at in range(3)}
    with pytest.raises(RecordError, match=r"no flight recorder dumps|holds more than"):
        Dumps(pack(tmp_path / "dumps.tar", many, "w"))
    damaged = bytearray(pack(tmp_path / "damaged.tar", {"rank_0": b"x" * 600, "rank_1": b"y"}, "w").read_bytes())
    damaged[1536:1700] = b"z" * 164
    (tmp_path / "damaged.tar").write_bytes(damaged)
    with pytest.raises(RecordError, match="cannot read"):
        Dumps(tmp_path / "damaged.tar")


def test_a_link_in_a_tar_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "dumps.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("rank_0")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(RecordError, match="no flight recorder dumps"):
        Dumps(path)
