"""What is brought back of a run, and where it is put."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.node.messages.agent import Made, MadeFile, Piece
from lab.run import ship
from lab.run.ship import LIMIT_BYTES, Outputs
from tests.golden import golden


def file(path: str, rank: int = 0, size: int = 3, fingerprint: str | None = None) -> MadeFile:
    return MadeFile(path, rank, size, f"{path}{size}" if fingerprint is None else fingerprint)


def send(outputs: Outputs, contents: bytes = b"abc") -> None:
    """The nodes send what is chosen, in two pieces."""
    for node, paths in outputs.choose().items():
        for path in paths:
            outputs.handle_message(node, Piece("r", path, contents[:1], last=False))
            outputs.handle_message(node, Piece("r", path, contents[1:], last=True))
    outputs.close()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_alike_is_kept_once_and_anything_else_by_rank(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "files")
    outputs.handle_message("node1", Made("r", (file("same", 1), file("out/a.pt", 1, fingerprint="1"))))
    outputs.handle_message("node0", Made("r", (file("same"), file("out/a.pt", fingerprint="0"), file("one"))))
    send(outputs)
    assert files(tmp_path / "files") == dict.fromkeys(("same", "rank0/out/a.pt", "rank1/out/a.pt", "rank0/one"), b"abc")
    assert {one.path: one.ranks for one in outputs.fetched} == {
        "same": (0, 1),
        "rank0/out/a.pt": (0,),
        "rank1/out/a.pt": (1,),
        "rank0/one": (0,),
    }
    assert outputs.left_out == []


def test_what_is_alike_cannot_take_the_place_of_what_is_kept_by_rank(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.handle_message("node0", Made("r", (file("rank1/a"), file("a", fingerprint="0"))))
    outputs.handle_message("node1", Made("r", (file("rank1/a", 1), file("a", 1, fingerprint="1"))))
    send(outputs)
    assert set(files(tmp_path)) == {"rank0/rank1/a", "rank1/rank1/a", "rank0/a", "rank1/a"}


def test_the_largest_files_are_left_out_where_there_are_too_many_bytes(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    half = LIMIT_BYTES // 2
    outputs.handle_message(
        "node0", Made("r", (file("large", size=LIMIT_BYTES + 1, fingerprint=""), file("b", size=half + 1)))
    )
    outputs.handle_message("node1", Made("r", (file("a", 1, size=half),), omitted=7))
    assert outputs.choose() == {"node0": [], "node1": ["a"]}
    outputs.close()
    assert outputs.left_out == [golden(1), golden(2), golden(3), golden(4)]


@pytest.mark.parametrize("path", ["../../x", "/etc/x", "a/../x", "a//x", "", ".", "a\0b", "x" * 2000])
def test_no_node_can_say_where_outside_a_file_goes(tmp_path: Path, path: str) -> None:
    outputs = Outputs(tmp_path / "run" / "files")
    outputs.handle_message("node0", Made("r", (file(path),)))
    assert outputs.choose() == {"node0": []}
    outputs.handle_message("node0", Piece("r", path, b"abc", last=True))
    outputs.close()
    assert files(tmp_path) == {}
    assert len(outputs.left_out) == 1


def test_what_nobody_asked_for_is_not_taken(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.handle_message("node0", Made("r", (file("a"),)))
    outputs.choose()
    outputs.handle_message("node0", Piece("r", "b", b"abc", last=True))
    outputs.handle_message("node1", Piece("r", "a", b"abc", last=True))
    assert files(tmp_path) == {}


def test_what_does_not_arrive_wholly_is_left_out(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.handle_message("node0", Made("r", (file("a"), file("b"))))
    outputs.choose()
    outputs.handle_message("node0", Piece("r", "a", b"ab", last=False))
    outputs.close()
    assert files(tmp_path) == {}
    assert outputs.left_out == [golden(1), golden(2)]


def test_what_cannot_be_written_is_left_out_and_the_rest_comes(tmp_path: Path) -> None:
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "a").write_text("a file where a folder has to be")
    outputs = Outputs(tmp_path)
    outputs.handle_message("node0", Made("r", (file("a/b"), file("c"))))
    send(outputs)
    assert (tmp_path / "rank0" / "c").read_bytes() == b"abc"
    assert [one.path for one in outputs.fetched] == ["rank0/c"]
    assert outputs.left_out[0].startswith(golden(1))


def test_a_file_whose_transfer_is_interrupted_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.handle_message("node0", Made("r", (file("a"), file("b"))))
    outputs.choose()
    outputs.handle_message("node0", Piece("r", "a", b"abc", last=True))
    outputs.handle_message("node0", Piece("r", "b", b"ab", last=False))
    outputs.interrupt()
    outputs.handle_message("node0", Piece("r", "b", b"c", last=True))
    outputs.close()
    assert files(tmp_path) == {"rank0/a": b"abc"}
    assert outputs.left_out == [golden(1)]


def test_a_long_transfer_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(ship, "_SECOND_S", 0.0)
    outputs = Outputs(tmp_path, shown.append)
    outputs.handle_message("node0", Made("r", (file("a", size=2),)))
    outputs.choose()
    outputs.handle_message("node0", Piece("r", "a", b"a", last=False))
    outputs.handle_message("node0", Piece("r", "a", b"b", last=True))
    assert shown == [golden(1), golden(2)]
