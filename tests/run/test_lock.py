"""One command at a time on a cluster, however its predecessor died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.errors import ClusterBusy, ClusterError
from lab.plan.cluster import ClusterInfo, Shape
from lab.run.lock import ClusterLock, read_killed
from tests.golden import golden


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def refuse(sentence: str) -> None:
    """Ask for the lock, which somebody else has."""
    with pytest.raises(ClusterBusy, match=sentence), ClusterLock("fake", "c").held("another"):
        pass


def test_a_lock_says_who_holds_it_and_what_for():
    lock = ClusterLock("fake", "c")
    assert lock.holder() is None
    with lock.held("lab up"):
        holder = ClusterLock("fake", "c").holder()
        assert (holder["pid"], holder["purpose"]) == (os.getpid(), "lab up")
        refuse(rf"cluster c is busy with lab up \(process {os.getpid()}, for 0 s\)")
    assert lock.holder() is None


def test_locks_of_other_clusters_and_engines_are_free():
    with ClusterLock("fake", "c").held("x"), ClusterLock("fake", "d").held("x"), ClusterLock("other", "c").held("x"):
        pass


def test_whoever_waits_gets_the_lock_when_its_holder_dies(tmp_path: Path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from lab.run.lock import ClusterLock\n"
        "with ClusterLock('fake', 'c').held('dying'): print('held', flush=True); sys.stdin.read()"
    )
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen([sys.executable, "-c", code, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        refuse("busy with dying")
        cluster = ClusterInfo(name="c", engine="fake", shape=Shape(nodes=1), nodes=(), owner="")
        assert not read_killed(cluster)
        holder.kill()
        holder.wait()
        assert read_killed(cluster) == "dying"
        with ClusterLock("fake", "c").held("waiting", 5.0) as lock:
            assert lock.crashed
        assert not read_killed(cluster)


def test_an_orderly_end_is_no_crash():
    with ClusterLock("fake", "c").held("first"):
        pass
    with ClusterLock("fake", "c").held("second") as lock:
        assert not lock.crashed


def test_an_error_inside_is_no_crash_either():
    with pytest.raises(KeyError), ClusterLock("fake", "c").held("first"):
        raise KeyError
    with ClusterLock("fake", "c").held("second") as lock:
        assert not lock.crashed


@pytest.mark.parametrize("garbage", [b"", b"[1]", b"null", b'"x"', b"\xff\xfe", b'{"since": "x"}', b"{" * 9000])
def test_garbage_in_the_file_of_a_held_lock_is_still_busy(garbage: bytes):
    lock = ClusterLock("fake", "c")
    with lock.held("x"):
        lock.path.write_bytes(garbage)
        assert lock.holder()["purpose"] == "something"
        refuse(r"busy with something \(process \?\)")


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    lock = ClusterLock("fake", "c")
    assert lock.holder() is None
    with pytest.raises(ClusterError, match=golden(1)), lock.held("x"):
        pass


def test_what_the_lock_holds_is_json():
    lock = ClusterLock("fake", "c")
    with lock.held('a run of "ü"'):
        assert json.loads(lock.path.read_text())["purpose"] == golden(1)
