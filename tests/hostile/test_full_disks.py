"""Disks that are full or read-only, and output that nobody can write or reads: a sentence, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Lab, docker_lab, kept, lab, local_lab, shared_local_lab
from tests.golden import golden
from tests.hostile.limited import NOBODY, Forks, Request

pytestmark = pytest.mark.half

__all__ = ["docker_lab", "kept", "lab", "local_lab", "shared_local_lab"]
WRITES = """
import os
print("begins", flush=True)
for number in range(20):
    with open(f"made{number}.bin", "wb") as file:
        file.write(os.urandom(40_000))
print("word " * 10_000, flush=True)
print("ends", flush=True)
"""
FAILS = "print('tried', flush=True)\nraise SystemExit(3)\n"
Mount = Callable[..., Path]
Words = tuple[str, ...]
NOT_FORESEEN = ("unexpected error", "Traceback", "Error:")


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a small file system, or a folder once more, read-only."""
    mounted: list[Path] = []
    if os.geteuid() != 0:
        pytest.skip("needs a kernel that lets this user mount")

    def mount(name: str, *, size: str = "", read_only: Path | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        kind = ["--bind", str(read_only)] if read_only else ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        subprocess.run(["mount", *kind, str(folder)], check=True)
        mounted.append(folder)
        if read_only:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def assert_is_a_sentence(said: str) -> None:
    """What a command wrote to standard error has one error, foreseen, perhaps with a hint."""
    assert not any(words in said for words in NOT_FORESEEN), said
    assert sum(line.startswith("lab: ") for line in said.splitlines()) == 1, said


class Outputs:
    """Runs verbs of a lab whose standard output is such a file."""

    def __init__(self, lab: Lab, forks: Forks) -> None:
        self._lab, self._forks = lab, forks

    def __call__(self, words: Words, out: str) -> tuple[int, str]:
        """Run a verb; its exit code and what it says."""
        lab, err = self._lab, self._lab.notes / "err"
        request = Request("lab.cli.main", [*words], str(lab.folder), out, str(err), lab.env)
        return self._forks.send(request), err.read_text()


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What verbs import is imported already."""
    made = Forks()
    made.learn(tmp_path_factory.mktemp("learned"), ["show"], ["status"])
    yield made
    made.close()


@pytest.fixture
def with_output(local_lab: Lab, forks: Forks) -> Outputs:
    return Outputs(local_lab, forks)


def broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


# -- records


@pytest.mark.parametrize(
    "size", ["16k", *(pytest.param(size, marks=pytest.mark.long) for size in ("64k", "128k")), "512k"]
)
def test_a_record_on_a_full_disk_ends_in_a_sentence(local_lab: Lab, mount: Mount, size: str) -> None:
    disk = mount("full", size=size)
    ended = local_lab("run", local_lab.script(WRITES), "--nodes", "2", "--runs", str(disk / "runs"))
    assert not any(words in ended.said for words in NOT_FORESEEN), ended.said
    if ended.code == 0:
        assert "not copied" in ended.out
        assert golden(1) in ended.out
    else:
        assert ended.code == 1
        assert golden(2) in ended.err
        assert_is_a_sentence(ended.err)
    assert local_lab.leftovers() == []


def test_views_of_a_record_that_was_cut_by_a_full_disk_work(shared_local_lab: Lab, mount: Mount) -> None:
    lab, disk = shared_local_lab, mount("full", size="64k")
    runs = str(disk / "runs")
    assert lab("up", "--nodes", "2").code == 0
    lab("run", lab.script(WRITES), "--runs", runs)
    for words in (["runs"], ["show"], ["logs"], ["explain"], ["report"]):
        ended = lab(words[0], "--runs", runs)
        assert not any(told in ended.said for told in NOT_FORESEEN), ended.said


@pytest.mark.parametrize("where", ["/proc/lab", "file", "file/below", "read-only"])
def test_a_folder_of_runs_that_cannot_be_written_is_named(
    local_lab: Lab, mount: Mount, tmp_path: Path, where: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "there").mkdir()
    runs = mount("ro", read_only=tmp_path / "there") / "runs" if where == "read-only" else tmp_path / where
    ended = local_lab("run", local_lab.script(FAILS), "--nodes", "1", "--runs", str(runs))
    assert ended.code == 1
    assert_is_a_sentence(ended.err)
    assert str(runs) in ended.err
    assert golden(1) in ended.err
    assert (tmp_path / "file").read_text() == "mine"
    assert local_lab.leftovers() == []


def test_a_report_that_cannot_be_written_is_named(shared_local_lab: Lab, mount: Mount) -> None:
    lab = shared_local_lab
    assert lab("up", "--nodes", "2").code == 0
    assert lab("run", lab.script(FAILS)).code == 1
    disk = mount("full", size="16k")
    for words in (["report", "--out", str(disk / "page.html")], ["report", "--out", "/proc/page.html"]):
        ended = lab(*words)
        assert ended.code == 1
        assert_is_a_sentence(ended.err)
        assert words[-1] in ended.err
    assert os.listdir(disk) == []


def test_files_of_a_suite_that_cannot_be_written_are_named(shared_local_lab: Lab) -> None:
    lab = shared_local_lab
    script = lab.script("pass")
    assert lab("up", "--nodes", "2").code == 0
    for option in ("--markdown", "--junit", "--html"):
        ended = lab("test", script, option, "/proc/none/file")
        assert ended.code == 1, ended.said
        assert not any(told in ended.said for told in NOT_FORESEEN), ended.said
        assert "/proc/none" in ended.err


# -- the folder that all nodes share

FILLS = """
import os
if os.environ["RANK"] == "0":
    folder = os.path.join(os.environ["LAB_SHARED"], "deep", "down")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, str(len(os.listdir(folder)))), "wb") as file:
        file.write(os.urandom(40 << 20))
"""


def test_what_runs_leave_in_the_shared_folder_is_shown_and_has_a_limit(lab: Lab) -> None:
    script = lab.script(FILLS)
    assert lab("up", "--nodes", "2", "--disk", "64MiB").code == 0
    assert "shared:" not in lab("status").out
    for _ in range(2):
        assert lab("run", script).code == 0
    assert 80 << 20 <= lab.status()["shared_bytes"] < 84 << 20
    assert golden(1) in lab("status").out

    ended = lab("run", script)

    assert ended.code == 1
    assert golden(2) in ended.said
    assert lab("run", "--fresh", script).code == 0
    assert 40 << 20 <= lab.status()["shared_bytes"] < 44 << 20


# -- state


def test_down_removes_all_where_the_state_is_read_only(lab: Lab, mount: Mount) -> None:
    assert lab("up", "--nodes", "1").code == 0
    lab.env["XDG_STATE_HOME"] = str(mount("ro", read_only=Path(lab.env["XDG_STATE_HOME"])))
    ended = lab("down")
    assert (ended.code, ended.err) == (0, "")
    assert f"removed {lab.name}: 1 node" in ended.out
    assert lab.leftovers() == []


@pytest.mark.parametrize("words", [("up", "--nodes", "1"), ("run", "script.py", "--nodes", "1")])
def test_what_needs_the_state_says_that_it_is_read_only(local_lab: Lab, mount: Mount, words: Words) -> None:
    script = local_lab.script("pass")
    state = Path(local_lab.env["XDG_STATE_HOME"])
    state.mkdir(exist_ok=True)
    local_lab.env["XDG_STATE_HOME"] = str(mount("ro", read_only=state))
    ended = local_lab(*(script if word == "script.py" else word for word in words))
    assert ended.code == 1
    assert_is_a_sentence(ended.err)
    assert "Read-only file system" in ended.err
    assert local_lab.leftovers() == []


def test_down_all_removes_what_is_there_where_a_journal_cannot_be_removed(local_lab: Lab, mount: Mount) -> None:
    assert local_lab("up", "--nodes", "1").code == 0
    locks = Path(local_lab.env["XDG_STATE_HOME"], "lab", "locks")
    (locks / f"local-{local_lab.name}.faults").write_text("")
    local_lab.env["XDG_STATE_HOME"] = str(mount("ro", read_only=locks.parent.parent))
    ended = local_lab("down", "--all")
    assert ended.code == 1
    assert_is_a_sentence(ended.err)
    assert golden(1, local_lab.name) in ended.err
    assert local_lab.leftovers() == []


def test_a_relative_home_of_local_clusters_is_resolved_once(local_lab: Lab) -> None:
    script = local_lab.script("import os\nprint('in', os.getcwd())")
    (local_lab.folder / "elsewhere").mkdir()
    relative = {"LAB_LOCAL_HOME": os.path.relpath(local_lab.home, local_lab.folder)}
    assert local_lab("up", "--nodes", "2", **relative).code == 0
    ended = local_lab("run", script, "--nodes", "2", **relative)
    assert ended.code == 0, ended.said
    assert local_lab("run", script).code == 0, "by its absolute path it is the same"
    assert f"removed {local_lab.name}" in local_lab("down", **relative).out
    assert local_lab.leftovers() == []


# -- output


SHOWING: list[Words] = [
    ("runs",), ("runs", "--json"), ("show",), ("show", "--json"), ("logs",), ("explain",), ("report",), ("scenarios",),
    ("status",), ("schema",), ("help", "faults"), ("--help",), ("--version",), ("trace", "--chrome", "-"),
    ("run", "--dry-run", "--engine", "local", "script.py"), ("validate", "script.py"),
]  # fmt: skip


def every_verb(lab: Lab) -> list[tuple[Words, int]]:
    """Verbs that do something, and then those that show it, and their exit codes where all goes well."""
    where, script = ("--engine", "local", "--name", lab.name), lab.script(FAILS)
    return [
        (("up", "--nodes", "1", *where), 0),
        (("run", script, *where), 1),
        (("run", script, "--json", *where), 1),
        (("run", script, script, *where), 1),
        (("test", script, *where), 1),
        *((tuple(script if word == "script.py" else word for word in words), 0) for words in SHOWING),
        (("down", *where), 0),
    ]


@pytest.mark.torch
def test_every_verb_says_that_its_output_cannot_be_written(local_lab: Lab, with_output: Outputs) -> None:
    for words, _ in every_verb(local_lab):
        code, said = with_output(words, "/dev/full")
        assert code == 1, (words, said)
        assert said.endswith(golden(1)), (words, said)
        assert_is_a_sentence(said)
    assert local_lab.leftovers() == []
    verdicts = [run["verdict"] for run in local_lab("runs", "--json").json()]
    assert verdicts == ["failed"] * len(verdicts), "every run was judged"


@pytest.mark.torch
def test_every_verb_keeps_its_exit_code_when_nobody_reads_its_output(local_lab: Lab, with_output: Outputs) -> None:
    for words, expected in every_verb(local_lab):
        code, said = with_output(words, NOBODY)
        assert code == expected, (words, said)
        assert not any(told in said for told in NOT_FORESEEN), (words, said)
        assert "lab: " not in said, (words, said)
    assert local_lab.leftovers() == []


def test_nobody_reads_either_stream_of_a_run(local_lab: Lab) -> None:
    pipe = broken_pipe()
    words = ["run", local_lab.script(FAILS), "--nodes", "1", "--engine", "local"]
    argv = [*local_lab.python, "-m", "lab.cli.main", *words]
    try:
        done = subprocess.run(argv, cwd=local_lab.folder, env=local_lab.env, stdout=pipe, stderr=pipe, timeout=150)
    finally:
        os.close(pipe)
    assert done.returncode == 1
    assert local_lab("runs", "--json").json()[0]["verdict"] == "failed"
    assert local_lab.leftovers() == []


def test_no_place_for_the_traceback_is_no_second_error(local_lab: Lab, mount: Mount) -> None:
    program = "from lab.errors import wrap_internal_error; print(wrap_internal_error(KeyError('x')).message)"
    disk = mount("full", size="4k")
    (disk / "fill").write_bytes(b"x" * 4096)
    env = {**local_lab.env, "TMPDIR": str(disk)}
    done = subprocess.run([*local_lab.python, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (golden(1), "")
