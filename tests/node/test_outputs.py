"""Which files count as made by a run, and that nothing else can be had."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.node import outputs
from lab.node.contents import ContentStore
from lab.node.kept_folders import KeptFolder
from lab.node.messages.agent import Finish, Made


def made_in(
    folder: Path, shipped: Iterable[str] = (), patterns: tuple[str, ...] | None = (), shared: str = "", limit: int = 99
) -> outputs.Outputs:
    """What a run made that was given these files, each of which is as it was unless it is missing here."""
    known = {name: os.stat(folder / name) for name in shipped}
    kept = KeptFolder("", str(folder), ContentStore(tempfile.mkdtemp()), None)
    for name, one in known.items():
        kept._identities[os.path.dirname(name)][os.path.basename(name)] = one.st_ino, one.st_ctime_ns
        kept._folders[os.path.dirname(name)] = (0, 0)
    began_ns = max((one.st_ctime_ns for one in known.values()), default=0)
    place: Any = SimpleNamespace(in_container=False, folder=str(folder), shipped=kept, began_ns=began_ns)
    return outputs.Outputs(Finish("r", patterns, limit, shared), place, {os.getuid(): 3}, lambda: None)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))


def paths(found: Made | None) -> set[str]:
    return {file.path for file in found.files} if found else set()


def contents(made: outputs.Outputs, *names: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    made.report()
    for piece in made.pieces(names):
        found[piece.path] = found.get(piece.path, b"") + piece.data
    return found


def test_what_was_shipped_is_not_made_and_what_programs_leave_by_the_way_neither(tmp_path: Path) -> None:
    put(tmp_path, "train.py", "new", "out/deep/a.pt", "__pycache__/x.pyc", ".cache/b", ".hidden", "c.pyc")
    made = made_in(tmp_path, ["train.py"])
    assert paths(made.report()) == {"new", "out/deep/a.pt"}
    assert contents(made, "new", "out/deep/a.pt") == {"new": b"new", "out/deep/a.pt": b"out/deep/a.pt"}


def test_nothing_made_is_told_only_to_other_nodes(tmp_path: Path) -> None:
    put(tmp_path, "train.py")
    assert made_in(tmp_path, ["train.py"], limit=0).report() is None
    put(tmp_path, "new")
    assert made_in(tmp_path, patterns=None, limit=0).report() is None
    assert made_in(tmp_path, patterns=None).report() == Made("r", ())


def test_what_was_shipped_and_changed_is_made(tmp_path: Path) -> None:
    put(tmp_path, "data")
    made = made_in(tmp_path, ["data"])
    before = os.stat(tmp_path / "data")
    while os.stat(tmp_path / "data").st_ctime_ns == before.st_ctime_ns:
        (tmp_path / "data").write_text("atad")
        os.utime(tmp_path / "data", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert paths(made.report()) == {"data"}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("*.pt",), {"a.pt", "out/b.pt"}),
        (("out",), {"out/b.pt", "out/c.txt"}),
        (("out/*.txt", ".hidden"), {"out/c.txt", ".hidden"}),
        (("nothing",), set()),
    ],
)
def test_patterns_name_files_and_folders(tmp_path: Path, patterns: tuple[str, ...], expected: set[str]) -> None:
    put(tmp_path, "a.pt", "out/b.pt", "out/c.txt", ".hidden", "d")
    assert paths(made_in(tmp_path, patterns=patterns).report()) == expected


def test_links_pipes_and_what_they_lead_to_cannot_be_had(tmp_path: Path) -> None:
    put(tmp_path, "secret", "run/plain")
    folder = tmp_path / "run"
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "way").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    made = made_in(folder, patterns=("*",))
    assert paths(made.report()) == {"plain"}
    assert contents(made, "link", "way/secret", "pipe", "../secret", "plain") == {"plain": b"run/plain"}


def test_what_is_too_much_has_no_fingerprint_and_the_smallest_come_first(tmp_path: Path) -> None:
    for name, size in (("large", 60), ("small", 10), ("other", 50)):
        (tmp_path / name).write_bytes(b"x" * size)
    told = made_in(tmp_path).report()
    assert told is not None
    assert [(file.path, file.bytes, bool(file.fingerprint)) for file in told.files] == [
        ("small", 10, True),
        ("other", 50, True),
        ("large", 60, False),
    ]
    assert {file.rank for file in told.files} == {3}


def test_files_of_the_shared_folder_say_so(tmp_path: Path) -> None:
    put(tmp_path, "work/a", "common/a")
    made = made_in(tmp_path / "work", shared=str(tmp_path / "common"))
    assert paths(made.report()) == {"a", "shared/a"}
    assert contents(made, "shared/a", "a") == {"shared/a": b"common/a", "a": b"work/a"}


def test_names_that_are_no_text_are_told_and_sent(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff\n")
    put(tmp_path, name)
    made = made_in(tmp_path)
    assert paths(made.report()) == {name}
    assert contents(made, name)


def test_an_empty_file_is_sent(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    made = made_in(tmp_path)
    made.report()
    assert [piece.last for piece in made.pieces(["empty"])] == [True]


def test_nothing_is_looked_for_behind_a_link_in_the_place_of_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/secret")
    (tmp_path / "work").symlink_to("elsewhere")
    assert made_in(tmp_path / "work", limit=0).report() is None
