"""What a run and its check find in their folders, and what the next run finds of them."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from lab.node import contents, kept_folders
from lab.node.contents import EXECUTABLE, FILE, LINK, ContentStore, Entry, Receiver, new_digest, write_header
from lab.node.kept_folders import KeptFolders
from lab.node.messages.agent import Claim, Config, Content, Folder, Lacks
from lab.node.run_folders import RunFolders, open_kept_folders
from lab.node.users import Users


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptFolders:
    monkeypatch.setattr(kept_folders, "_IN_MEMORY", ())  # no test writes through a mapping
    (tmp_path / "agent").mkdir()
    return open_kept_folders(Config("node0", str(tmp_path / "agent"), container=False, import_root=""))


@pytest.fixture
def place(kept: KeptFolders, tmp_path: Path) -> RunFolders:
    return begin(kept, tmp_path)


def begin(kept: KeptFolders, tmp_path: Path) -> RunFolders:
    return RunFolders("r", str(tmp_path / "agent"), Users(Claim("r", "me", 30.0), container=False), kept)


def digest(text: str) -> str:
    return new_digest(text.encode()).hexdigest()


def ship(place: RunFolders, files: dict[str, str], token: str = "t", *, for_check: bool = False) -> Lacks | None:
    """Send contents and a folder; a text that begins with `->` is a link, one that begins with `#!` a program."""
    entries = {}
    for path, text in files.items():
        kind = LINK if text.startswith("->") else EXECUTABLE if text.startswith("#!") else FILE
        text = text.removeprefix("->")
        entries[path] = Entry(kind, 1_000_000_000, digest(text))
        data = write_header(digest(text), len(text)) + text.encode()
        for start in range(0, len(data), 7):
            place.receive(Content("r", data[start : start + 7], last=start + 7 >= len(data), for_check=for_check))
    known = contents.write_entries(entries.items())
    return describe(place, Folder("r", "key", token, entries=known, for_check=for_check))


def describe(place: RunFolders, folder: Folder) -> Lacks | None:
    """Describe a folder, and make it as the agent does."""
    lacks = place.describe(folder)
    place.make()
    return lacks


def tree(folder: str) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"->{os.readlink(path)}" if path.is_symlink() else path.read_text()
        for path in Path(folder).rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


FILES = {"main.py": "main", "pkg/a.py": "a", "pkg/deep/b.py": "b", "tool": "#!x", "link": "->pkg/a.py"}


def test_a_check_works_in_a_fresh_copy_of_what_the_ranks_got(place: RunFolders) -> None:
    assert ship(place, {"verify.py": "ours"}) is None
    work = Path(place.folder, "verify.py")
    work.write_text("theirs")
    assert Path(place.fresh_copy(), "verify.py").read_text() == "ours"
    assert [one.path for one in place.shipped.differences()] == ["verify.py"]


def test_what_is_for_the_check_alone_is_nowhere_before_it_and_after_it(
    place: RunFolders, kept: KeptFolders, tmp_path: Path
) -> None:
    ship(place, {"verify.py": "for all"})
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    ship(place, {"verify.py": "secret"}, for_check=True)
    assert Path(place.fresh_copy(), "verify.py").read_text() == "secret"
    assert Path(place.folder, "verify.py").read_text() == "for all"
    assert place.remove(lambda: None) == []
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_folder_is_made_as_it_was_described(place: RunFolders) -> None:
    ship(place, FILES)
    assert tree(place.folder) == FILES | {"link": "->pkg/a.py"}
    assert os.access(f"{place.folder}/tool", os.X_OK)
    assert not os.access(f"{place.folder}/main.py", os.X_OK)
    assert os.stat(f"{place.folder}/main.py").st_mtime == 1_000_000_000


def test_a_node_says_what_it_lacks_and_makes_the_folder_once_that_is_there(place: RunFolders) -> None:
    text = "late"
    entries = contents.write_entries([("late.py", Entry(FILE, 1, digest(text)))])
    lacks = place.describe(Folder("r", "key", "t", entries=entries))
    assert lacks is not None
    assert lacks.digests == (digest(text),)
    assert not place.are_complete
    assert tree(place.folder) == {}
    data = write_header(digest(text), len(text)) + text.encode()
    answer = place.receive(Content("r", data, last=True))
    assert not place.are_complete
    place.make()
    assert answer is not None
    assert answer.digests == ()
    assert place.are_complete
    assert tree(place.folder) == {"late.py": text}


def test_changes_apply_only_to_the_state_that_they_name(place: RunFolders, kept: KeptFolders, tmp_path: Path) -> None:
    ship(place, FILES, "t1")
    place.remove(lambda: None)
    again = begin(kept, tmp_path)
    added = contents.write_entries([("new/n.py", Entry(FILE, 1, digest("a")))])
    unknown = describe(again, Folder("r", "key", "t3", "t2", added))
    assert unknown is not None
    assert unknown.everything
    assert describe(again, Folder("r", "key", "t2", "t1", added, ("pkg/deep/b.py", "main.py"))) is None
    assert tree(again.folder).keys() == {"new/n.py", "pkg/a.py", "tool", "link"}
    assert not os.path.exists(f"{again.folder}/pkg/deep")


def test_files_and_folders_take_each_others_place(place: RunFolders, kept: KeptFolders, tmp_path: Path) -> None:
    ship(place, {"x": "file", "y/z": "inner", "l": "->x"}, "t1")
    place.remove(lambda: None)
    again = begin(kept, tmp_path)
    ship(again, {"x/y": "inner", "y": "->x", "l/m": "file"}, "t2")
    assert tree(again.folder) == {"x/y": "inner", "y": "->x", "l/m": "file"}


def chmod_everything(top: Path) -> None:
    for path in (top / "pkg" / "a.py", top / "pkg" / "deep", top / "pkg", top / "main.py"):
        path.chmod(0)


def replace_by_link(top: Path) -> None:
    (top / "pkg").rename(top / "moved")
    (top / "pkg").symlink_to("/etc")


def write_through_a_hard_link(top: Path) -> None:
    os.link(top / "main.py", top / "other")
    (top / "other").write_text("changed")
    (top / "other").unlink()


def write_with_the_same_time(top: Path) -> None:
    status = os.stat(top / "main.py")
    (top / "main.py").write_text("MAIN")
    os.utime(top / "main.py", ns=(status.st_atime_ns, status.st_mtime_ns))


def swap(top: Path) -> None:
    (top / "main.py").rename(top / "kept")
    (top / "pkg" / "a.py").rename(top / "main.py")
    (top / "kept").rename(top / "pkg" / "a.py")


def write_in_a_mapping(top: Path) -> None:
    import mmap

    with open(top / "main.py", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        _ = mapped[0]  # the page is mapped before it is written
        mapped[0:1] = b"M"


def remove_everything(top: Path) -> None:
    import shutil

    shutil.rmtree(top / "pkg")
    (top / "main.py").unlink()
    (top / "link").unlink()


def add_attributes(top: Path) -> None:
    os.setxattr(top / "pkg", "user.left", b"x")
    os.setxattr(top / "main.py", "user.left", b"x")


def add_special_files(top: Path) -> None:
    os.mkfifo(top / "pipe")
    (top / "pkg" / "deep" / "more" / "and more").mkdir(parents=True)
    (top / "pkg" / "deep" / "more" / "and more" / "f").write_text("f")
    (top / "pkg" / "deep" / "more").chmod(0)


@pytest.mark.parametrize("quiet_runs", [0, 2])
@pytest.mark.parametrize(
    "tamper",
    [
        chmod_everything, replace_by_link, write_through_a_hard_link, write_with_the_same_time, swap,
        write_in_a_mapping, remove_everything, add_attributes, add_special_files,
    ],
)  # fmt: skip
def test_the_next_run_finds_the_folder_as_it_was_shipped(
    place: RunFolders, kept: KeptFolders, tmp_path: Path, tamper: object, quiet_runs: int
) -> None:
    if tamper is write_in_a_mapping and kept_folders._file_system_of(str(tmp_path)) in ("tmpfs", "ramfs"):
        pytest.skip("needs kernel: a file system in memory does not update times for mappings")
    ship(place, FILES)
    for _ in range(quiet_runs):  # after them, folders need not be listed again
        assert place.remove(lambda: None) == []
        place = begin(kept, tmp_path)
        assert describe(place, Folder("r", "key", "t", "t")) is None
    place.shipped.await_tick()
    before = os.stat(f"{place.folder}/tool").st_ino
    tamper(Path(place.folder))  # type: ignore[operator]
    assert place.remove(lambda: None) == []
    again = begin(kept, tmp_path)
    assert describe(again, Folder("r", "key", "t", "t")) is None
    assert tree(again.folder) == FILES | {"link": "->pkg/a.py"}
    assert os.stat(f"{again.folder}/tool").st_ino == before  # and was not written again
    for path in Path(again.folder).rglob("*"):
        assert os.listxattr(path, follow_symlinks=False) == []
        assert path.is_symlink() or os.access(path, os.R_OK)
        assert path.is_symlink() or path.stat().st_mode & 0o700 == (
            0o700 if path.is_dir() or path.name == "tool" else 0o600
        )


@pytest.mark.parametrize("how", ["a link", "gone", "a file"])
def test_a_folder_that_is_gone_is_made_anew(place: RunFolders, kept: KeptFolders, tmp_path: Path, how: str) -> None:
    ship(place, FILES)
    work = Path(place.folder)
    work.rename(work.parent / "elsewhere")
    if how == "a link":
        work.symlink_to("elsewhere")
    elif how == "a file":
        work.write_text("x")
    assert place.remove(lambda: None) == []
    again = begin(kept, tmp_path)
    answer = describe(again, Folder("r", "key", "t", "t"))
    assert answer is not None
    assert answer.everything
    assert ship(again, FILES) is None
    assert tree(again.folder) == FILES | {"link": "->pkg/a.py"}


def test_folders_in_memory_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_folders, "_file_system_of", lambda _: "tmpfs")
    (tmp_path / "agent").mkdir()
    kept = open_kept_folders(Config("node0", str(tmp_path / "agent"), container=False, import_root=""))
    place = begin(kept, tmp_path)
    ship(place, FILES)
    place.remove(lambda: None)
    answer = describe(begin(kept, tmp_path), Folder("r", "key", "t", "t"))
    assert answer is not None
    assert answer.everything


def test_only_the_last_folders_are_kept(kept: KeptFolders, tmp_path: Path) -> None:
    for number in range(7):
        place = begin(kept, tmp_path)
        entries = contents.write_entries([("a", Entry(FILE, 1, digest("a")))])
        place.receive(Content("r", write_header(digest("a"), 1) + b"a", last=True))
        assert describe(place, Folder("r", f"key{number}", "t", entries=entries)) is None
        place.remove(lambda: None)
    assert len(list((tmp_path / "agent" / "kept").iterdir())) == 7
    kept.shrink()  # as the agent does after it has reported the end of the run
    assert len(list((tmp_path / "agent" / "kept").iterdir())) == 4


def test_contents_that_do_not_have_their_digest_are_refused(tmp_path: Path) -> None:
    store = ContentStore(str(tmp_path / "contents"))
    with pytest.raises(ValueError, match="changed while it was sent"):
        Receiver(store).feed(write_header(digest("a"), 1) + b"b")
    assert store.lacking([digest("a")])
    assert not [*tmp_path.rglob("*.part")]


def test_a_store_loses_the_oldest_packs_beyond_its_limit(tmp_path: Path) -> None:
    store = ContentStore(str(tmp_path / "contents"))
    other = ContentStore(store.folder)  # of another agent on the same machine
    receiver, texts = Receiver(store), [f"{number}" * 1000 for number in range(8)]
    size = len(write_header(digest(""), 0)) + 1000
    known = set[Path]()
    for number, text in enumerate(texts):
        receiver.feed(write_header(digest(text), len(text)) + text.encode(), last=True)
        (pack,) = {*tmp_path.rglob("*.pack")} - known
        known.add(pack)
        os.utime(pack, (number, number))
    assert other.lacking(map(digest, texts)) == []
    store.shrink({digest(texts[0])}, 4 * size)
    for one in (store, other, ContentStore(store.folder)):
        assert one.lacking(map(digest, texts)) == sorted(map(digest, texts[1:4]))
    assert store.size_bytes() == 5 * size


def test_a_store_has_what_arrived_and_nothing_of_a_content_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_PACK_BYTES", 2000)
    store, texts = ContentStore(str(tmp_path / "contents")), ["a" * 1500, "", "b" * 1500, "c" * 5000]
    stream = b"".join(write_header(digest(text), len(text)) + text.encode() for text in texts)
    for size in (1, 1000, len(stream)):
        receiver = Receiver(store)
        for start in range(0, len(stream) - 1, size):
            receiver.feed(stream[start : min(start + size, len(stream) - 1)])
        assert store.lacking(map(digest, texts)) == [digest(texts[3])]
        receiver.close()
    assert [store.read(digest(text)) for text in texts[:3]] == [text.encode() for text in texts[:3]]
    (pack,) = tmp_path.rglob("*.pack")
    os.truncate(pack, pack.stat().st_size - 1)  # as after a failure of the machine
    assert ContentStore(store.folder).lacking(map(digest, texts)) == sorted([digest(texts[2]), digest(texts[3])])


def test_a_clock_that_was_set_back_holds_no_run_up(place: RunFolders) -> None:
    assert ship(place, FILES) is None
    place.shipped._written += 3600 * 10**9
    place.shipped.await_tick()


def flags_of(path: str, added: int = 0) -> int:
    """The flags of an inode, after others were added."""
    folder = os.open(path, os.O_RDONLY)
    try:
        flags = int.from_bytes(fcntl.ioctl(folder, kept_folders._GET_FLAGS, bytes(8)), sys.byteorder)
        if added:
            fcntl.ioctl(folder, kept_folders._SET_FLAGS, (flags | added).to_bytes(8, sys.byteorder))
        return flags | added
    finally:
        os.close(folder)


def test_no_flag_of_a_folder_stays_for_the_next_run(place: RunFolders) -> None:
    assert ship(place, FILES) is None
    folders = [place.folder, f"{place.folder}/pkg/deep"]
    try:
        before = [flags_of(folder) for folder in folders]
        for folder in folders:
            assert flags_of(folder, 0x8) & 0x8  # FS_SYNC_FL: every write waits for the disk
    except OSError:
        pytest.skip("needs kernel: this file system has no such flags")
    assert place.shipped.restore()
    assert [flags_of(folder) for folder in folders] == before
