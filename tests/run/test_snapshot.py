"""What is shipped of a folder: its files, links that stay in it, and nothing from outside."""

from __future__ import annotations

import os
import socket
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.node.contents import EXECUTABLE, LINK, ContentStore, Receiver, read_entries
from lab.node.kept_folders import KeptFolder
from lab.node.messages.agent import Content, Folder, Lacks
from lab.run import snapshot as snapshots
from lab.run.ship import Shipment, warnings_of
from lab.run.snapshot import Snapshot, read_snapshot
from tests.golden import golden


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    path.mkdir()
    (path / "main.py").write_text("print()\n")
    return path


def shipped(snapshot: Snapshot) -> dict[str, str]:
    """Name -> where a link leads, or `file`."""
    entries = read_entries(snapshot.all_entries())
    links = {
        digest: (content.data or b"").decode()
        for digest, content in snapshot.find_contents(entry.digest for entry in entries.values() if entry.kind == LINK)
    }
    return {path: links[entry.digest] if entry.kind == LINK else "file" for path, entry in entries.items()}


def made(snapshot: Snapshot, where: Path) -> Path:
    """The folder as a node makes it."""
    store, sent = ContentStore(str(where / "contents")), list[Content]()
    Shipment(snapshot, "r", lambda _, *messages: sent.extend(messages)).handle_message(
        "node0", Lacks("r", "s", tuple({entry.digest for entry in read_entries(snapshot.all_entries()).values()}))
    )
    receiver = Receiver(store)
    for one in sent:
        receiver.feed(one.data, last=one.last)
    (where / "work").mkdir()
    KeptFolder("", str(where / "work"), store, None).become(read_entries(snapshot.all_entries()))
    return where / "work"


def test_a_large_transfer_is_announced_once_with_its_largest_file(folder: Path) -> None:
    for name, size in (("big.bin", 200 << 20), ("small.bin", 40 << 20)):
        with open(folder / name, "wb") as file:
            file.truncate(size)
    snapshot = read_snapshot(folder)
    digests = {entry.digest for entry in read_entries(snapshot.all_entries()).values()}
    said = list[str]()
    shipment = Shipment(snapshot, "r", lambda *_: None, said.append)
    for node in ("node0", "node1"):
        shipment.handle_message(node, Lacks("r", node, tuple(digests)))
    [announced] = [line for line in said if "the largest is" in line]
    assert announced.startswith("sending 252 MB in 3 changed files to the nodes; the largest is big.bin (210 MB); ")
    assert "--data NAME=FOLDER" in announced
    said.clear()
    main = next(entry.digest for path, entry in read_entries(snapshot.all_entries()).items() if path == "main.py")
    Shipment(snapshot, "r", lambda *_: None, said.append).handle_message("node0", Lacks("r", "s", (main,)))
    assert said == []


def test_links_within_the_folder_stay_links(folder: Path, tmp_path: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "x.txt").write_text("x")
    (folder / "relative").symlink_to("data/x.txt")
    (folder / "absolute").symlink_to(folder / "data" / "x.txt")
    (folder / "data" / "up").symlink_to("../main.py")
    (folder / "common").symlink_to("data")
    (folder / "around").symlink_to("relative")

    snapshot = read_snapshot(folder)

    assert shipped(snapshot) == {
        "main.py": "file",
        "data/x.txt": "file",
        "data/up": "../main.py",
        "relative": "data/x.txt",
        "absolute": "data/x.txt",
        "around": "data/x.txt",
        "common": "data",
    }
    assert [*warnings_of(snapshot)] == []
    there = made(snapshot, tmp_path / "there")
    assert (there / "common" / "x.txt").read_text() == (there / "absolute").read_text() == "x"


def test_links_that_lead_out_stay_behind_and_the_first_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (folder / "a").symlink_to(tmp_path / "secret")
    (folder / "b").symlink_to("../secrets")
    (folder / "c").symlink_to("/")
    (folder / "d").symlink_to("/proc/self/environ")
    (folder / "e").symlink_to("a")
    (folder / "f").symlink_to("../s/../secret")
    (folder / "g").symlink_to("/nowhere/at/all")

    snapshot = read_snapshot(folder)

    assert shipped(snapshot) == {"main.py": "file"}
    assert sorted(one.split()[0] for one in snapshot.left_out) == list("abcdefg")
    assert [*warnings_of(snapshot)] == [golden(1, tmp_path / "secret")]


def test_folders_that_link_to_each_other_are_no_loop(folder: Path) -> None:
    for name in "xyz":
        (folder / name).mkdir()
        (folder / name / "self").symlink_to("self")
        for other in "xyz":
            (folder / name / f"to-{other}").symlink_to(f"../{other}")
    assert len(shipped(read_snapshot(folder))) == 1 + 3 * 4


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    (folder / "inside").symlink_to("main.py")
    assert shipped(read_snapshot(tmp_path / "link")) == {"main.py": "file", "inside": "main.py"}


def test_pipes_and_sockets_are_left_out_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        snapshot = read_snapshot(folder)
    assert shipped(snapshot) == {"main.py": "file"}
    assert sorted(snapshot.left_out) == [golden(1), golden(2)]


def test_folders_that_lie_too_deep_are_refused(folder: Path) -> None:
    deep = folder.joinpath(*["d"] * 101)
    deep.mkdir(parents=True)
    with pytest.raises(UsageError, match=golden(1)):
        read_snapshot(folder)


def test_hidden_folders_stay_behind_as_links_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / ".venv").symlink_to(tmp_path / "elsewhere")
    (folder / ".env").write_text("A=1")
    snapshot = read_snapshot(folder)
    assert shipped(snapshot) == {"main.py": "file", ".env": "file"}
    assert snapshot.left_out == []


def test_what_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match=golden(1)):
        read_snapshot(folder)


def test_what_is_removed_while_the_folder_is_read_stays_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("early/one.py", "early.py", "late.py"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("print()\n")
    scandir, open_file = os.scandir, os.open

    def list_then_remove(path: str) -> object:
        listed = scandir(path)
        entries = list(listed)
        for gone in ("early/one.py", "early.py"):
            (folder / gone).unlink(missing_ok=True)
        with suppress(OSError):
            (folder / "early").rmdir()
        return nullcontext(entries)

    def remove_then_open(path: Path, *rest: int) -> int:
        (folder / "late.py").unlink(missing_ok=True)
        return open_file(path, *rest)

    monkeypatch.setattr(os, "scandir", list_then_remove)
    monkeypatch.setattr(os, "open", remove_then_open)
    assert shipped(read_snapshot(folder)) == {"main.py": "file"}


def test_data_in_the_folder_stays_behind(folder: Path) -> None:
    (folder / "data" / "mnist").mkdir(parents=True)
    (folder / "data" / "mnist" / "a").write_text("")
    (folder / "data" / "b").write_text("")
    (folder / "link").symlink_to(folder / "data" / "mnist")
    names = shipped(read_snapshot(folder, [folder / "link"]))
    assert "data/b" in names
    assert not [name for name in names if "mnist" in name]


def test_what_labignore_names_stays_behind(folder: Path) -> None:
    for name in ("old.ckpt", "old/main.py", "lib/old.py", "lib/notes/a.txt", "lib/notes.txt", "notes"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".labignore").write_text("*.ckpt  # large\n\nold*/\nlib/notes/\n.labignore\n")

    assert shipped(read_snapshot(folder)).keys() == {"main.py", "lib/old.py", "lib/notes.txt", "notes"}


def test_patterns_that_are_invalid_match_nothing(folder: Path) -> None:
    (folder / ".gitignore").write_text("!\na\\\n[z-a]\nlib/\n")

    assert shipped(read_snapshot(folder)).keys() == {"main.py", ".gitignore"}


def test_the_first_lesson_ships_nothing_of_the_topics_beside_it() -> None:
    library = Path(__file__).parents[2] / "scenarios"

    assert shipped(read_snapshot(library)).keys() == {"scatter.py", "scatter.yaml"}


# -- what changed since the last snapshot


@pytest.fixture
def large(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with an index; its files are old enough to be trusted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(snapshots, "_SMALL_FILES", 2)
    monkeypatch.setattr(snapshots, "_RACY_NS", -10_000_000_000_000)
    for number in range(5):
        (folder / f"m{number}.py").write_text(f"{number}")
    return folder


def save(folder: Path, **options: bool) -> Snapshot:
    snapshot = read_snapshot(folder, **options)
    snapshot.save()
    return snapshot


def test_a_folder_without_changes_is_not_read_again(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(large)
    assert first.base == ""
    assert len(read_entries(first.all_entries())) == first.files == 6
    monkeypatch.setattr(snapshots, "new_digest", None)
    second = save(large)
    assert (second.base, second.token, second.entries, second.removed) == (first.token, first.token, {}, ())
    assert second.all_entries() == first.all_entries()


def test_only_changes_are_told_with_the_state_that_they_apply_to(large: Path) -> None:
    first = save(large)
    (large / "m1.py").write_text("changed")
    (large / "m2.py").unlink()
    (large / "new").mkdir()
    (large / "new" / "n.py").write_text("n")
    (large / "m3.py").chmod(0o755)
    (large / "link").symlink_to("m0.py")
    second = save(large)
    assert second.base == first.token != second.token
    assert second.entries.keys() == {"m1.py", "new/n.py", "m3.py", "link"}
    assert (second.entries["m3.py"].kind, second.entries["link"].kind) == (EXECUTABLE, LINK)
    assert second.removed == ("m2.py",)
    assert save(large).entries == {}


def test_what_changed_again_in_the_same_tick_is_read_again(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_RACY_NS", 10_000_000_000)
    first = save(large)
    path, status = large / "m1.py", os.stat(large / "m1.py")
    key = f"m1.py//{status.st_size}/{status.st_mtime_ns}/{status.st_ctime_ns}/{status.st_ino}"
    assert key not in first.index
    path.write_text("2")
    assert save(large).entries.keys() == {"m1.py"}


def test_an_index_of_another_folder_or_a_damaged_one_is_no_index(large: Path, tmp_path: Path) -> None:
    save(large)
    (index,) = (tmp_path / "state" / "lab" / "folders").iterdir()
    for damaged in (b"", b"\0\0\0", index.read_bytes()[:-40], b"\xff" * 99):
        index.write_bytes(damaged)
        assert len(read_entries(save(large).all_entries())) == 6
        assert save(large).entries == {}


# -- .gitignore


def test_what_gitignore_names_stays_behind_in_its_folder_and_below(large: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("/s/m0.py\n*.log\n")
    (large / ".gitignore").write_text("build/\n*.pt\n!keep.pt\n")
    for name in ("build/x.py", "sub/build/y.py", "a.pt", "keep.pt", "a.log", "sub/z.py", "sub/only.py"):
        (large / name).parent.mkdir(parents=True, exist_ok=True)
        (large / name).write_text("x")
    (large / "sub" / ".gitignore").write_text("only.py\n")
    expected = {"main.py", "m1.py", "m2.py", "m3.py", "m4.py", "keep.pt", "sub/z.py", ".gitignore", "sub/.gitignore"}
    for _ in range(2):
        assert read_entries(save(large).all_entries()).keys() == expected
    everything = read_entries(save(large, all_files=True).all_entries()).keys()
    assert everything == expected | {"m0.py", "a.pt", "a.log", "build/x.py", "sub/build/y.py", "sub/only.py"}

    (large / ".gitignore").write_text("m1.py\n")
    now = read_entries(save(large).all_entries()).keys()
    assert now == (expected - {"m1.py"}) | {"a.pt", "build/x.py", "sub/build/y.py"}
    (large / ".gitignore").unlink()
    (large / "sub" / ".gitignore").unlink()
    assert read_entries(save(large).all_entries()).keys() >= {"m1.py", "sub/only.py"}


def test_decisions_in_a_small_folder_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "out.log").touch()
    monkeypatch.setattr(snapshots, "_RACY_NS", -10_000_000_000)
    save(folder)
    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "_read_patterns", lambda file: [] if file.name == ".labignore" else 1 / 0)
        assert shipped(save(folder)).keys() == {"main.py", ".gitignore"}
    (folder / ".gitignore").write_text("main.py\n")
    assert shipped(save(folder)).keys() == {"out.log", ".gitignore"}


def test_gitignore_above_a_folder_counts_only_in_a_repository(large: Path, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert "m0.py" in read_entries(read_snapshot(large).all_entries())


# -- what is sent


class Nodes:
    """Agents that share stores, as far as they answer what they are sent."""

    def __init__(self, snapshot: Snapshot, stores: dict[str, str]) -> None:
        self.stores = stores
        self.sent: list[tuple[str, object]] = []
        self.shipment = Shipment(snapshot, "r", lambda node, *messages: self.sent.extend((node, m) for m in messages))

    def new(self) -> list[tuple[str, object]]:
        sent, self.sent[:] = list(self.sent), []
        return sent


def test_nodes_that_share_a_store_get_what_they_lack_through_one_of_them(large: Path) -> None:
    (large / "big").write_bytes(os.urandom(1 << 21))
    snapshot = save(large)
    nodes = Nodes(snapshot, {})
    digests = tuple({entry.digest for entry in read_entries(snapshot.all_entries()).values()})
    for node in ("node0", "node1", "node2"):
        nodes.shipment.begin(node)
    assert [(node, type(one)) for node, one in nodes.new()] == [(f"node{n}", Folder) for n in range(3)]
    for node, store in (("node0", "s"), ("node1", "s"), ("node2", "other")):
        nodes.shipment.handle_message(node, Lacks("r", store, digests))
    assert {node for node, _ in nodes.new()} == {"node0", "node2"}
    nodes.shipment.handle_message("node0", Lacks("r", "s"))
    assert nodes.new() == [("node1", Content("r", b"", last=True))]
    nodes.shipment.handle_message("node1", Lacks("r", "s", digests[:1]))  # something went wrong: it gets its own
    assert {node for node, _ in nodes.new()} == {"node1"}
    nodes.shipment.handle_message("node3", Lacks("r", "s", digests))  # it had looked before node0 was done
    assert nodes.new() == []
    nodes.shipment.handle_message("node1", Lacks("r", "s"))
    assert nodes.new() == [("node3", Content("r", b"", last=True))]


def test_a_node_that_does_not_know_the_state_before_gets_everything(large: Path) -> None:
    save(large)
    (large / "m1.py").write_text("changed")
    snapshot = save(large)
    nodes = Nodes(snapshot, {})
    nodes.shipment.begin("node0")
    content, folder = (one for _, one in nodes.new())
    assert isinstance(content, Content)
    assert isinstance(folder, Folder)
    assert read_entries(folder.entries).keys() == {"m1.py"}
    nodes.shipment.handle_message("node0", Lacks("r", "s", everything=True))
    ((_, whole),) = nodes.new()
    assert isinstance(whole, Folder)
    assert (whole.base, len(read_entries(whole.entries))) == ("", 6)


def test_a_large_folder_is_announced_with_its_largest_files(folder: Path) -> None:
    with open(folder / "data.bin", "wb") as file:
        file.truncate(3 << 20)
    snapshot = read_snapshot(folder)
    snapshot.bytes += 2 << 30
    assert [*warnings_of(snapshot)] == [golden(1)]


def test_files_from_elsewhere_are_added_under_their_names(large: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "package.py"
    elsewhere.write_text("package")
    for _ in range(2):
        snapshot = read_snapshot(large, added={"pkg/__init__.py": elsewhere})
        snapshot.save()
        assert read_entries(snapshot.all_entries()).keys() >= {"pkg/__init__.py", "main.py"}
    assert (made(snapshot, tmp_path / "there") / "pkg" / "__init__.py").read_text() == "package"
    elsewhere.write_text("changed")
    assert read_snapshot(large, added={"pkg/__init__.py": elsewhere}).entries.keys() == {"pkg/__init__.py"}
