"""What a run and its check find in their folders."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path

import pytest

from lab.node.messages.agent import Claim, Files
from lab.node.run_folders import RunFolders
from lab.node.users import Users


@pytest.fixture
def place(tmp_path: Path) -> RunFolders:
    return RunFolders(str(tmp_path), Users(Claim("r", "me", 30.0), container=False))


def files(text: str, *, for_check: bool = False) -> list[Files]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("verify.py")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    data = zlib.compress(buffer.getvalue())
    return [Files("r", data[:10], last=False, for_check=for_check), Files("r", data[10:], True, for_check)]


def test_a_check_works_in_a_fresh_copy_of_what_the_ranks_got(place: RunFolders) -> None:
    for piece in files("ours"):
        place.receive(piece)
    work = Path(place.folder, "verify.py")
    work.write_text("theirs")
    assert Path(place.fresh_copy(), "verify.py").read_text() == "ours"
    assert place.shipped == {"verify.py"}


def test_what_is_for_the_check_alone_is_nowhere_before_it(place: RunFolders, tmp_path: Path) -> None:
    for piece in (*files("for all"), *files("secret", for_check=True)):
        place.receive(piece)
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert "for all" in texts
    assert "secret" not in texts
    assert Path(place.fresh_copy(), "verify.py").read_text() == "secret"
    assert Path(place.folder, "verify.py").read_text() == "for all"
