"""What nodes keep of a script's folder from one run to the next, and that no script can change it for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from tests.engines.conftest import written

Run = Callable[..., Result]
pytestmark = [pytest.mark.usefixtures("usable", "nothing_left"), pytest.mark.half]

LOOK = """
import hashlib, os
from lab import note
top = os.path.dirname(__file__)
def tree():
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            data = os.readlink(path).encode() if os.path.islink(path) else open(path, "rb").read()
            yield os.path.relpath(path, top), hashlib.sha1(data).hexdigest()
note("tree", sorted(tree()))
note("here", [os.getcwd() == os.path.realpath(top), sorted(os.listdir("."))])
"""
ATTACK = """
import mmap, os, shutil, stat
for folder in ("/var/lab/kept", "/var/lab-contents"):
    for attempt in (os.listdir, lambda path: open(path + "/x", "w"), lambda path: os.rename(path, path + "x")):
        try:
            attempt(folder)
        except OSError:
            pass
        else:
            raise SystemExit(f"{folder} is open")
times = os.stat("same.txt")
with open("same.txt", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    first = mapped[0]
    mapped[0:1] = b"X"
os.utime("same.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
os.link("pkg/a.py", "/tmp/linked") if os.stat("/tmp").st_dev == os.stat(".").st_dev else None
open("pkg/a.py", "a").write("changed")
os.chmod("pkg/b.py", 0)
os.rename("pkg/deep", "moved")
os.symlink("/etc", "pkg/deep")
os.makedirs("new/folder")
open("new/folder/file", "w").write("new")
os.chmod("pkg", stat.S_IRWXU | stat.S_ISGID)
shutil.rmtree("gone")
os.unlink("link")
"""


def ship(tmp_path: Path, script: str) -> Path:
    path = written(tmp_path / "s", script)
    files = {"same.txt": "same", "pkg/a.py": "a", "pkg/b.py": "b", "pkg/deep/c.py": "c", "gone/d.py": "d"}
    for name, text in files.items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_text(text)
    if not (path.parent / "link").is_symlink():
        (path.parent / "link").symlink_to("pkg/a.py")
    return path


@pytest.mark.parametrize("engine", ["docker"])
def test_no_script_changes_what_the_next_one_finds(run: Run, tmp_path: Path) -> None:
    before = run(ship(tmp_path, LOOK), nodes=2)
    assert before.passed, before.reason
    attacked = run(ship(tmp_path, ATTACK), nodes=2)
    assert attacked.passed, attacked.reason + attacked.ranks[0].log
    made = {output.path for output in attacked.outputs}
    assert {"new/folder/file", "same.txt", "pkg/a.py", "moved/c.py"} <= {path.split("/", 1)[-1] for path in made} | made
    after = run(ship(tmp_path, LOOK), nodes=2)
    assert after.passed, after.reason + after.ranks[0].log
    assert [rank.notes for rank in after.ranks] == [rank.notes for rank in before.ranks]


def test_a_change_on_this_machine_is_what_the_next_run_finds(run: Run, tmp_path: Path) -> None:
    script = ship(tmp_path, LOOK)
    for number in range(100):  # as many files as have an index
        (script.parent / "pkg" / f"m{number}.py").write_text(f"{number}")
    first = run(script, nodes=2)
    (script.parent / "pkg" / "m7.py").write_text("changed")
    (script.parent / "pkg" / "m8.py").unlink()
    (script.parent / "more").mkdir()
    (script.parent / "more" / "n.py").write_text("n")
    second = run(script, nodes=2)
    known = [[tuple(one) for one in result.ranks[1].notes["tree"]] for result in (first, second)]
    changed = {path for path, _ in set(known[0]) ^ set(known[1])}
    assert changed == {"pkg/m7.py", "pkg/m8.py", "more/n.py"}
    assert second.ranks[0].notes == second.ranks[1].notes


def test_a_large_file_is_there_and_complete_in_each_run(run: Run, tmp_path: Path) -> None:
    script = ship(tmp_path, LOOK)
    with open(script.parent / "large.bin", "wb") as file:
        file.writelines(bytes([number]) * (1 << 20) for number in range(80))
    first, second = run(script, nodes=2), run(script, nodes=2)
    assert first.passed, first.reason
    trees = [rank.notes["tree"] for result in (first, second) for rank in result.ranks]
    assert trees[1:] == trees[:1] * 3
    assert any(path == "large.bin" for path, _ in trees[0])
