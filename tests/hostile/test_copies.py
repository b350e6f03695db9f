"""`lab cp` of what a hostile script left in its node, and tars that a hostile engine sends: what may arrive here."""

from __future__ import annotations

import io
import os
import resource
import stat
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result
from lab.cli.main import main
from lab.errors import UsageError
from lab.features.copy import archive
from lab.features.copy.archive import LIMIT_BYTES, pack_tar, unpack_tar
from lab.features.grade.keys import Grading
from lab.features.grade.submissions import Submission, stage_submission
from lab.node.contents import EXECUTABLE, FILE, read_entries
from lab.run.snapshot import read_snapshot
from lab.spec.scenario import Scenario
from tests.golden import golden
from tests.run.test_snapshot import made

MIB = 1 << 20
GIB = 1 << 30
MakeCluster = Callable[..., Cluster]
Run = Callable[..., Result]


def cp(*words: str) -> int:
    return main(["cp", *words])


def written_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def everything_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder)), path.lstat()


def assert_is_plain(folder: Path) -> None:
    """Only files of mode 0644 and 0755, and folders of mode 0755, of the caller, without attributes."""
    for name, facts in everything_below(folder):
        mode = facts.st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), name
        assert stat.S_IMODE(mode) in ((0o755,) if stat.S_ISDIR(mode) else (0o644, 0o755)), (name, oct(mode))
        assert (facts.st_uid, facts.st_gid) == (os.geteuid(), os.getegid()), name
        assert os.listxattr(folder / name, follow_symlinks=False) == [], name
        assert stat.S_ISDIR(mode) or facts.st_nlink == 1, name


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to copy into."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


PREPARE = r"""
set -e
rm -rf /shared/left && mkdir -p /shared/left/deep /shared/left/sticky && cd /shared/left
printf 'run me' > program && chmod 6755 program
printf 'closed' > closed && chmod 0000 closed
printf 'open' > open && chmod 0666 open
chmod 1777 sticky && chmod 7777 deep
ln -s /etc/shadow link && ln -s / root && ln -s deep inside
ln program again && mkfifo pipe
python3 - <<'END'
import os, socket
with socket.socket(socket.AF_UNIX) as one: one.bind("socket")
for kind, name in ((0o020000, "null"), (0o060000, "disk")):
    try: os.mknod(name, kind | 0o666, os.makedev(1, 3))
    except OSError: pass
for name in (b"x\x1b]0;pwned\x07", b"\xff\xfe", "a\u202etxt.exe".encode(), b"n\nl", b" ", b"-rf", b"n" * 255):
    with open(b"deep/" + name, "wb") as file: file.write(b"x")
folder = b"deep"
for number in range(100):
    folder += b"/d"
    os.mkdir(folder)
try: os.setxattr("open", "user.evil", b"x")
except OSError: pass
END
truncate -s 300M sparse && printf 'end' >> sparse
"""


@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
class TestFromContainers:
    """Files that processes in a container left, root's included."""

    @pytest.fixture
    def cluster(self, make_cluster: MakeCluster, capfd: pytest.CaptureFixture[str]) -> Cluster:
        cluster = make_cluster(nodes=2)
        assert main(["exec", "--engine", "docker", "--name", cluster.name, "node0", "--", "sh", "-c", PREPARE]) == 0
        capfd.readouterr()
        return cluster

    def test_what_arrives_is_plain_and_what_does_not_is_named(
        self, cluster: Cluster, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--engine", "docker", "--name", cluster.name]
        assert cp(*words, "--max-size", "64MiB", "node0:left", ".") == 0, "holes take nothing"

        left = here / "left"
        assert_is_plain(left)
        assert {path.name for path in here.iterdir()} == {"left"}
        assert (left / "program").read_text() == (left / "again").read_text() == "run me"
        modes = {name: stat.S_IMODE((left / name).stat().st_mode) for name in ("program", "again", "closed", "open")}
        assert modes == {"program": 0o755, "again": 0o755, "closed": 0o644, "open": 0o644}
        arrived = set(os.listdir(left))
        assert not {"link", "root", "inside", "pipe", "socket", "null", "disk"} & arrived, arrived
        assert len(os.listdir(left / "deep")) == 8
        assert (left / "sparse").stat().st_size == 300 * MIB + 3
        assert written_bytes(left / "sparse") <= MIB
        said = capfd.readouterr().out
        assert golden(1) in said
        assert "\x1b" not in said
        assert len(said.splitlines()) == 1

    def test_more_than_the_limit_leaves_nothing(
        self, cluster: Cluster, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (here / "left").mkdir()
        (here / "left" / "open").write_text("mine")

        assert cp("--engine", "docker", "--name", cluster.name, "--max-size", "16MiB", "node0:left", ".") == 2

        said = capfd.readouterr().err
        assert said == (golden(1))
        assert [str(path.relative_to(here)) for path in here.rglob("*")] == ["left", "left/open"]
        assert (here / "left" / "open").read_text() == "mine"

    def test_what_goes_into_a_node_has_plain_modes_and_leads_nowhere(
        self, cluster: Cluster, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        source = here / "source"
        (source / "sub").mkdir(parents=True)
        (source / "program").write_text("x")
        (source / "program").chmod(0o6755)
        (source / "inside").symlink_to("program")
        (source / "outside").symlink_to("/etc/shadow")
        (source / "up").symlink_to("../..")
        os.mkfifo(source / "pipe")
        words = ["--engine", "docker", "--name", cluster.name]

        assert cp(*words, "source", "node1:") == 0
        look = "cd /shared/source && stat -c '%n %a %u %F' * && readlink inside"
        assert main(["exec", *words, "node0", "--", "sh", "-c", look]) == 0

        said = capfd.readouterr().out
        assert "program 775 20000 regular file" in said
        assert "sub 775 20000 directory" in said
        assert "inside" in said
        assert not any(f"\n{name} " in said for name in ("outside", "up", "pipe"))
        assert said.count("source/outside") == 1

    def test_a_sparse_file_is_refused_before_anything_is_sent(
        self, cluster: Cluster, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with open(here / "sparse", "wb") as file:
            file.truncate(3 * GIB)
        began = time.monotonic()

        assert cp("--engine", "docker", "--name", cluster.name, "sparse", "node0:") == 2

        assert golden(1) in capfd.readouterr().err
        assert time.monotonic() - began < 10


# -- the local engine


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_local_copies_are_plain_too(make_cluster: MakeCluster, here: Path) -> None:
    cluster = make_cluster(nodes=1)
    info = cluster.info()
    assert info is not None
    left, sparse_bytes = Path(info.shared) / "left", 1100 * MIB
    (left / "sub").mkdir(parents=True)
    (left / "program").write_text("x")
    (left / "program").chmod(0o6755)
    (left / "sub").chmod(0o1777)
    (left / "link").symlink_to("/etc/shadow")
    os.mkfifo(left / "pipe")
    with open(left / "sparse", "wb") as file:
        file.truncate(sparse_bytes)
        file.write(b"begin")

    assert cp("--engine", "local", "--name", cluster.name, "node0:left", ".") == 0

    assert_is_plain(here / "left")
    assert sorted(os.listdir(here / "left")) == ["program", "sparse", "sub"]
    assert (here / "left" / "sparse").stat().st_size == sparse_bytes > LIMIT_BYTES
    assert written_bytes(here / "left" / "sparse") <= MIB
    assert cp("--engine", "local", "--name", cluster.name, "left/program", "node0:copied") == 0
    assert stat.S_IMODE((Path(info.shared) / "copied").stat().st_mode) == 0o755


# -- tars of a hostile engine


def tar_of(*entries: tuple[str, dict[str, Any], bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, facts, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for key, value in facts.items():
                setattr(entry, key, value)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


FOLDER = ("x", {"type": tarfile.DIRTYPE, "mode": 0o7777}, b"")
GOOD = ("x/good", {"mode": 0o4755, "uid": 0}, b"good")


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE, **facts: Any) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    for key, value in facts.items():
        setattr(entry, key, value)
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def raw_header(name: bytes, size_field: bytes, kind: bytes = b"0") -> bytes:
    """A header with any bytes in the field of its size, and the right checksum."""
    block = bytearray(header("x", 0))
    block[:100] = name.ljust(100, b"\0")
    block[124:136] = size_field.ljust(12, b"\0")
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(**records: str) -> bytes:
    body = b""
    for name, value in records.items():
        text = f" {name}={value}\n".encode("utf-8", "surrogateescape")
        length = len(text) + 1
        while len(str(length)) + len(text) != length:
            length = len(str(length)) + len(text)
        body += str(length).encode() + text
    return header("pax", len(body), tarfile.XHDTYPE) + body + bytes(-len(body) % 512)


LEFT_OUT = {
    "a path that climbs": ("x/../../out", {}, b"evil"),
    "an absolute path": ("/tmp/lab-evil", {}, b"evil"),
    "a link out": ("x/link", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, b""),
    "a link within": ("x/link", {"type": tarfile.SYMTYPE, "linkname": "good"}, b""),
    "a hard link out": ("x/hard", {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"}, b""),
    "a hard link up": ("x/hard", {"type": tarfile.LNKTYPE, "linkname": "x/../../../etc/shadow"}, b""),
    "a hard link to itself": ("x/hard", {"type": tarfile.LNKTYPE, "linkname": "x/hard"}, b""),
    "a pipe": ("x/pipe", {"type": tarfile.FIFOTYPE}, b""),
    "a character device": ("x/null", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}, b""),
    "a block device": ("x/disk", {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}, b""),
    "a kind that nobody knows": ("x/odd", {"type": b"Z"}, b"abc"),
    "a name of 300 bytes": (f"x/{'n' * 300}", {}, b"evil"),
    "a path of 3,000 bytes": ("x/" + "dir/" * 750, {}, b"evil"),
    "a path that lies deep": ("x/" + "d/" * 100 + "f", {}, b"evil"),
    "a name twice": ("x/good", {}, b"evil"),
    "a folder in the place of a file": ("x/good", {"type": tarfile.DIRTYPE}, b""),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_only_plain_files_below_the_target_arrive(tmp_path: Path, what: str) -> None:
    target = tmp_path / "in" / "target"
    target.parent.mkdir()
    archive = tar_of(FOLDER, GOOD, LEFT_OUT[what], ("x/last", {}, b"last"))
    left_out = unpack_tar([archive], target)
    assert len(left_out) == 1
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "in", "in/target", "in/target/good", "in/target/last",
    ]  # fmt: skip
    assert_is_plain(tmp_path / "in")
    assert (target / "good").read_bytes() == b"good"
    assert not Path("/tmp/lab-evil").exists()


END = bytes(1024)
HUGE = b"\x80" + b"\x7f".rjust(11, b"\xff")
DAMAGED = {
    "an extension of 8 GiB": header("././@LongLink", 8 * GIB - 1, tarfile.GNUTYPE_LONGNAME) + bytes(4096),
    "PAX records of 8 GiB": header("pax", 8 * GIB - 1, tarfile.XHDTYPE) + bytes(4096),
    "PAX records for all of 8 GiB": header("pax", 8 * GIB - 1, tarfile.XGLTYPE) + bytes(4096),
    "PAX records that lie about their length": header("pax", 20, tarfile.XHDTYPE)
    + b"999999 path=x\n".ljust(512, b"\0"),
    "PAX records of length 0": header("pax", 20, tarfile.XHDTYPE) + b"0 path=x\n".ljust(512, b"\0"),
    "a size that is negative": raw_header(b"x", b"\xff" * 11 + b"\x00"),
    "a size of 2 to the 87": raw_header(b"x", HUGE),
    "a size that is no number": raw_header(b"x", b"zzz"),
    "a PAX size that is no number": pax(size="1e9", path="x") + header("x", 3) + b"abc".ljust(512, b"\0"),
    "a PAX size that is negative": pax(size="-1", path="x") + header("x", 3) + b"abc".ljust(512, b"\0"),
    "an old sparse file": raw_header(b"x", b"00000000003", b"S") + bytes(512),
    "no header": b"\xff" * 512 + END,
    "half a header": header("x", 0)[:200],
    "less than it says": header("x", 1 << 20) + b"abc",
    "extensions without end": pax(comment="x") * 10_000 + header("x", 0) + END,
    "a file of 1 TiB": pax(size=str(1 << 40), path="x") + header("x", 0),
    "nothing": END,
    "not even an end": b"",
    "only a link": tar_of(("x", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, b"")),
    "a file below a link": tar_of(
        FOLDER, ("x/way", {"type": tarfile.SYMTYPE, "linkname": "/tmp"}, b""), ("x/way/lab-evil", {}, b"evil")
    ),
    "a file below a file": tar_of(("x", {}, b"file"), ("x/below", {}, b"evil")),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_tar_that_lies_is_refused_in_a_sentence_and_leaves_nothing(tmp_path: Path, what: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError) as refused:
        unpack_tar([DAMAGED[what]], tmp_path / "target")
    assert "\n" not in refused.value.message
    assert os.listdir(tmp_path) == []
    assert not Path("/tmp/lab-evil").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"


def endless(first: bytes, then: Callable[[int], bytes]) -> Iterator[bytes]:
    yield first
    number = 0
    while True:
        yield then(number)
        number += 1


ENDLESS = {
    "empty files": lambda: endless(tar_of(FOLDER)[:512], lambda n: header(f"x/{n}", 0)),
    "links": lambda: endless(tar_of(FOLDER)[:512], lambda n: header(f"x/{n}", 0, tarfile.SYMTYPE, linkname="/")),
    "the same file": lambda: endless(tar_of(FOLDER)[:512], lambda n: header("x/a", 0)),
    "a file": lambda: endless(header("x", 8 * GIB - 1), lambda n: os.urandom(64) * 16384),
    "zeros": lambda: endless(header("x", 8 * GIB - 1), lambda n: bytes(MIB)),
    "long names": lambda: endless(
        tar_of(FOLDER)[:512],
        lambda n: header("l", 16_000, tarfile.GNUTYPE_LONGNAME) + b"n" * 16_000 + bytes(384) + header("x/a", 0),
    ),
}


@pytest.mark.parametrize(
    ("most_entries", "most_mib"), [(1000, 2), pytest.param(archive.MOST_ENTRIES, 64, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("what", ENDLESS)
def test_a_tar_without_end_is_refused_in_bounded_time_and_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, most_entries: int, most_mib: int
) -> None:
    monkeypatch.setattr(archive, "MOST_ENTRIES", most_entries)
    began = time.monotonic()
    with pytest.raises(UsageError, match=golden(1, most_mib, f"{most_entries:,}")):
        unpack_tar(ENDLESS[what](), tmp_path / "target", most_bytes=most_mib * MIB)
    assert time.monotonic() - began < 60
    assert os.listdir(tmp_path) == []


def test_many_names_of_one_sparse_file_are_refused_in_bounded_time(tmp_path: Path) -> None:
    size = 256 * MIB
    links = b"".join(header(f"x/{n}", 0, tarfile.LNKTYPE, linkname="x/first") for n in range(1000))
    pieces = [tar_of(FOLDER)[:512], header("x/first", size), *[bytes(MIB)] * 256, links, END]
    with pytest.raises(UsageError, match=golden(1)):
        unpack_tar(pieces, tmp_path / "target", most_bytes=64 * MIB)
    assert os.listdir(tmp_path) == []


# -- what is here already


def test_a_link_that_is_here_leads_no_file_out_of_the_target(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (outside / "mine").write_text("mine")
    (target / "good").symlink_to(outside / "mine")
    (target / "sub").symlink_to(outside)
    unpack_tar([tar_of(FOLDER, GOOD)], target)
    assert (outside / "mine").read_text() == "mine"
    assert not (target / "good").is_symlink()
    with pytest.raises(UsageError, match=golden(1)):
        unpack_tar([tar_of(FOLDER, ("x/sub", {"type": tarfile.DIRTYPE}, b""), ("x/sub/new", {}, b"x"))], target)
    assert os.listdir(outside) == ["mine"]


def test_no_device_or_pipe_is_written_to_or_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", Path("/dev/null")):
        kind = stat.S_IFMT(target.lstat().st_mode)
        with pytest.raises(UsageError, match=golden(1)):
            unpack_tar([tar_of(("x", {}, b"x"))], target)
        assert stat.S_IFMT(target.lstat().st_mode) == kind


def test_a_copy_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    with pytest.raises(UsageError, match="the archive is damaged"):
        unpack_tar([header("x", 1 << 20) + b"abc"], target)
    assert (target.read_text(), os.listdir(tmp_path)) == ("mine", ["target"])


def test_a_disk_that_is_full_leaves_nothing_and_is_named(small_disk: Path) -> None:
    data = os.urandom(2 * MIB)
    with pytest.raises(UsageError, match=golden(1)):
        unpack_tar([tar_of(("x", {}, data))], small_disk / "target")
    assert os.listdir(small_disk) == []


def test_a_folder_that_changes_while_it_is_packed_makes_a_whole_tar(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"a" * 100_000)
    archive = pack_tar(source, "x")
    (source / "a").write_bytes(b"")
    assert unpack_tar(archive, tmp_path / "there") == []
    assert (tmp_path / "there" / "a").stat().st_size == 100_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs a kernel that lets this user mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


# -- folders that are shipped


def test_a_shipped_folder_has_plain_modes_and_no_link_that_leads_out(tmp_path: Path) -> None:
    for name, mode in (("set", 0o6755), ("open", 0o666), ("closed", 0o600), ("group", 0o4674)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    (tmp_path / "out").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "pipe")

    snapshot = read_snapshot(tmp_path)

    shipped = {path: entry.kind for path, entry in read_entries(snapshot.all_entries()).items()}
    assert shipped == {name: EXECUTABLE if name == "set" else FILE for name in ("set", "open", "closed", "group")}
    assert len(snapshot.left_out) == 2

    there = made(snapshot, tmp_path / "there")
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in there.iterdir()} == {
        name: 0o755 if name == "set" else 0o644 for name in shipped
    }


def test_files_of_an_assignment_are_given_without_their_modes(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    for path in (tmp_path / "given" / "tool", tmp_path / "helper.py"):
        path.write_text("x")
        path.chmod(0o6755)
    script, own = tmp_path / "ring.py", tmp_path / "handed.py"
    script.write_text("")
    own.write_text("")
    assignment = Scenario(name="ring", script=script, extra={"grade": Grading(files=("given", "helper.py"))})
    with stage_submission(Submission(name="a", path=own), assignment) as (staged, _):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in staged.parent.rglob("*") if path.is_file()}
    assert modes == {"tool": 0o644, "helper.py": 0o644, "ring.py": 0o644}
