"""Odd places: a full disk, a folder that cannot be written, names with spaces and letters beyond ASCII, garbage."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import HOLD, Lab, docker_leftovers, make_lab, put_away, wait_until
from tests.golden import golden

pytestmark = pytest.mark.half

FLOOD = """
import sys
line = "x" * 1000 + "\\n"
for _ in range(20000):
    sys.stdout.write(line)
"""
FINE = "print('fine', flush=True)\n"


MS_RDONLY = 1
MNT_DETACH = 2


def mounted(folder: Path, flags: int) -> Iterator[Path]:
    """A file system of 512 KiB, as long as the test lasts."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", flags, b"size=512k"):
        pytest.skip(f"needs kernel permission to mount a tmpfs: {os.strerror(ctypes.get_errno())}")
    yield folder
    libc.umount2(os.fsencode(folder), MNT_DETACH)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with little room."""
    yield from mounted(tmp_path / "small", 0)


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that nobody may write, not even root."""
    yield from mounted(tmp_path / "read-only", MS_RDONLY)


def fill(disk: Path) -> None:
    """Write until there is no room."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017


@pytest.mark.local_first
def test_a_full_disk_cancels_the_run_with_a_sentence_and_leaves_the_cluster(shared_lab: Lab, small_disk: Path):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    ended = lab("run", lab.script(FLOOD, "flood.py"), "--quiet", "--runs", str(small_disk / "runs"))
    assert ended.code == 1
    assert golden(1, small_disk) in ended.err
    assert golden(2) in ended.err
    assert golden(3) in ended.err
    assert "Traceback" not in ended.said
    wait_until(lambda: not lab.workers(), "the end of the workers")

    cut_short = lab("runs", "--json", "--runs", str(small_disk / "runs")).json()
    assert [run["verdict"] for run in cut_short] == ["error"]
    logs = [lab("logs", "--runs", str(small_disk / "runs"), "--rank", rank) for rank in "01"]
    assert [log.code for log in logs] == [0, 0]
    assert any("xxxx" in log.out for log in logs)

    assert lab.status()["state"] == "ready"
    assert lab("run", lab.script(FINE, "fine.py")).code == 0


def test_a_disk_that_is_full_from_the_start_is_a_sentence(local_lab: Lab, small_disk: Path):
    fill(small_disk)
    ended = local_lab("run", local_lab.script(FINE), "--runs", str(small_disk / "runs"))
    assert ended.code == 1
    assert golden(1) in ended.err
    assert "Traceback" not in ended.said
    assert local_lab.leftovers() == []


def test_a_full_disk_below_the_lock_is_a_sentence(local_lab: Lab, small_disk: Path):
    (small_disk / "lab" / "locks").mkdir(parents=True)
    fill(small_disk)
    ended = local_lab("up", XDG_STATE_HOME=str(small_disk))
    assert ended.code == 1
    assert golden(1, local_lab.name) in ended.err
    assert "XDG_STATE_HOME" in ended.err
    assert "Traceback" not in ended.said


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "LAB_LOCAL_HOME"])
def test_a_state_folder_that_cannot_be_made_is_a_sentence(local_lab: Lab, tmp_path: Path, variable: str):
    (tmp_path / "file").write_text("in the way")
    ended = local_lab("up", "--nodes", "1", **{variable: str(tmp_path / "file" / "below")})
    assert ended.code == 1, ended.said
    assert variable in ended.err
    assert "Traceback" not in ended.said


def test_a_runs_folder_that_cannot_be_written_is_a_sentence(local_lab: Lab, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    ended = local_lab("run", local_lab.script(FINE), "--runs", str(tmp_path / "file" / "runs"))
    assert ended.code == 1
    assert golden(1) in ended.err
    assert "--runs" in ended.err
    assert "Traceback" not in ended.said
    assert local_lab.leftovers() == []


def test_a_read_only_runs_folder_is_a_sentence(local_lab: Lab, read_only_disk: Path):
    ended = local_lab("run", local_lab.script(FINE), "--runs", str(read_only_disk / "runs"))
    assert ended.code == 1
    assert "Read-only file system" in ended.err
    assert "Traceback" not in ended.said
    assert local_lab.leftovers() == []


@pytest.mark.long
@pytest.mark.parametrize("folder", ["mein Ördner, 目录 №1", "'quoted\" $HOME `x`", "-rf", "ends with."])
def test_any_folder_name_will_do(local_lab: Lab, tmp_path: Path, folder: str):
    lab = local_lab
    here = tmp_path / folder
    here.mkdir()
    (here / "skript ü.py").write_text("print('läuft 走', flush=True)\n")
    ended = lab.start("run", "./skript ü.py", "--nodes", "1", "--name", lab.name, folder=here).end()
    assert ended.code == 0, ended.said
    assert "läuft 走" in ended.out
    (record,) = (here / ".lab" / "runs").iterdir()
    assert "läuft 走" in (record / "logs" / "rank0.log").read_text()
    assert lab.start("logs", folder=here).end().out.endswith("läuft 走\n")


@pytest.mark.local_first
def test_the_default_cluster_of_a_folder_with_an_odd_name_is_found_again_and_runs_scripts_there(
    lab: Lab, tmp_path: Path
):
    here = tmp_path / "Über uns 目录 №1, 'quoted\" $HOME `x`"
    here.mkdir()
    (here / "skript ü.py").write_text("print('läuft 走', flush=True)\n")
    engine = ["--engine", lab.engine]

    def plain(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [*lab.python, "-m", "lab.cli.main", verb, *words]
        return subprocess.run(argv, cwd=here, env=lab.env, capture_output=True, text=True, timeout=60)

    up = plain("up", "--nodes", "1", "--json", *engine)
    assert up.returncode == 0, up.stderr
    name = json.loads(up.stdout)["name"]
    assert name.startswith("uber-uns-")
    run = plain("run", "./skript ü.py", *engine)
    assert run.returncode == 0, run.stderr
    assert "läuft 走" in run.stdout
    (record,) = (here / ".lab" / "runs").iterdir()
    assert "läuft 走" in (record / "logs" / "rank0.log").read_text()
    assert plain("logs").stdout.endswith("läuft 走\n")
    assert f"removed {name}" in plain("down", *engine).stdout
    assert lab.leftovers() == []


# -- others, and garbage


@pytest.mark.local_first
def test_a_cluster_of_another_owner_is_neither_found_nor_removed(shared_lab: Lab, tmp_path: Path):
    lab = shared_lab
    assert lab("up", "--nodes", "2").code == 0
    stranger = make_lab(lab.engine, tmp_path / "stranger")
    stranger.name = lab.name
    try:
        assert stranger.status() is None
        assert stranger("down").out == "nothing to remove\n"
        assert stranger("down", "--all").out == "nothing to remove\n"
        refused = stranger("exec", "node0", "--", "true")
        assert refused.code == 2
        assert golden(1) in refused.err
    finally:
        assert put_away(stranger) == []
    assert lab.status()["state"] == "ready"


@pytest.mark.docker
def test_a_name_that_another_owner_uses_is_refused_with_a_sentence(docker_lab: Lab, tmp_path: Path):
    """Docker's names are the engine's, whoever asks: the second cannot have the first one's."""
    assert docker_lab("up", "--nodes", "1").code == 0
    stranger = make_lab("docker", tmp_path / "stranger")
    stranger.name = docker_lab.name
    try:
        ended = stranger("up", "--nodes", "1")
        assert ended.code == 2, ended.said
        assert "Traceback" not in ended.said
        assert "--name" in ended.err
    finally:
        assert put_away(stranger) == []
    assert docker_lab.status()["state"] == "ready"
    assert docker_leftovers(docker_lab.owner) != []


GARBAGE = ["", "not json", "[1, 2]", '"text"', "null", "\x00\xff", '{"pid": "x", "since": "yesterday"}', "{" * 5000]


def test_garbage_or_a_dead_process_in_the_lock_file_disturbs_nobody(local_lab: Lab):
    lab = local_lab
    lock = Path(lab.env["XDG_STATE_HOME"]) / "lab" / "locks" / f"local-{lab.name}.lock"
    lock.parent.mkdir(parents=True)
    for garbage in GARBAGE:
        lock.write_bytes(garbage.encode("utf-8", "surrogateescape"))
        assert lab("down").out == "nothing to remove\n"
    lock.write_text(json.dumps({"pid": 1, "purpose": "a run of old", "since": 0.0}))
    assert lab("up", "--nodes", "1").code == 0
    assert lab.status()["busy"] is None
    lock.write_bytes(b"\xff")
    ended = lab("run", lab.script(FINE), "--nodes", "1")
    assert ended.code == 0, ended.said


def test_garbage_in_the_lock_file_of_a_busy_cluster_still_says_busy(shared_local_lab: Lab):
    lab = shared_local_lab
    assert lab("up", "--nodes", "2").code == 0
    run = lab.start("run", lab.script(HOLD, "hold.py"))
    run.wait_for("holding", 2)
    lock = Path(lab.env["XDG_STATE_HOME"]) / "lab" / "locks" / f"local-{lab.name}.lock"
    for garbage in GARBAGE:
        lock.write_bytes(garbage.encode("utf-8", "surrogateescape"))
        refused = lab("run", lab.script(FINE, "fine.py"))
        assert refused.code == 2, refused.said
        assert "is busy with" in refused.err
        assert "Traceback" not in refused.said
    assert "busy" in lab("status").out
    assert lab("down").code == 0
    run.end()


def test_garbage_in_the_local_home_is_neither_a_cluster_nor_removed(local_lab: Lab):
    lab = local_lab
    for name, description in {
        "empty": None,
        "text": "not json",
        "list": "[]",
        "half": '{"shape": "{}"}',
        "strange": '{"shape": 5, "network": 3}',
    }.items():
        (lab.home / name).mkdir()
        if description is not None:
            (lab.home / name / "cluster.json").write_text(description)
    (lab.home / "precious").mkdir()
    (lab.home / "precious" / "thesis.tex").write_text("years of work")
    (lab.home / "file").write_text("just a file")
    assert lab("status", "--name", "half").code == 0
    assert lab("status", "--json", "--name", "text").json() == []
    assert lab("up", "--nodes", "1").code == 0
    assert lab("run", lab.script(FINE)).code == 0
    assert lab("down", "--all").code == 0
    assert sorted(path.name for path in lab.home.iterdir()) == ["file", "precious"]
    assert (lab.home / "precious" / "thesis.tex").read_text() == "years of work"
    refused = lab("up", "--nodes", "1", "--name", "precious")
    assert refused.code == 1
    assert golden(1) in refused.err
    (lab.home / "file").unlink()
    (lab.home / "precious" / "thesis.tex").unlink()
    (lab.home / "precious").rmdir()
