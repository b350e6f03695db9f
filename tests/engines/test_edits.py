"""`lab run --watch`: a script runs again at every save, and the lab says what changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.engine.select import select_engine
from tests.golden import golden

pytestmark = pytest.mark.half

DEADLINE_S = 120.0
SCRIPT = """
import lab
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4)
dist.all_reduce(total)
lab.note("sum", total[0].item())
"""
HUNG = SCRIPT.replace("dist.all_reduce(total)", "import time; print('hangs', flush=True); time.sleep(600)")


class Loop:
    """A command that watches a folder, and the lines that it prints: `lab run --watch ... 2>&1 | tee run.log` there."""

    def __init__(self, folder: Path, engine: str, *words: str) -> None:
        self.folder = folder
        self.engine = engine
        self.output = folder / "run.log"
        self.name = f"lab-test-{os.getpid()}-{time.monotonic_ns() % 10**6}"
        command = [sys.executable, "-m", "lab.cli.main", "run", "--watch", *words, "--engine", engine]
        self.output.touch()
        self.process = subprocess.Popen(
            [*command, "--name", self.name], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.copy = subprocess.Popen(["tee", self.output], stdin=self.process.stdout, stdout=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def read(self) -> str:
        return self.output.read_text()

    def wait_for(self, what: str, times: int = 1) -> str:
        """Wait until a text was printed so often; return what was printed after that."""
        deadline = time.monotonic() + DEADLINE_S
        while self.read().count(what) < times:
            assert self.process.poll() is None, self.read()
            assert time.monotonic() < deadline, self.read()
            time.sleep(0.02)
        return self.read().split(what)[-1]

    def save(self, name: str, text: str) -> None:
        """Save a file as editors do: write another one, and rename it."""
        new = self.folder / f"{name}~"
        new.write_text(text)
        new.rename(self.folder / name)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.copy.wait(DEADLINE_S)
        return self.process.wait(DEADLINE_S)

    def find_clusters(self) -> list[str]:
        return [info.name for info in select_engine(self.engine, self.name)[0].find(self.name)]


@pytest.fixture
def start(engine: str, tmp_path: Path) -> Iterator[Callable[..., Loop]]:
    loops: list[Loop] = []
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)

    def start(*words: str) -> Loop:
        loops.append(Loop(folder, engine, *words))
        return loops[-1]

    yield start
    for loop in loops:
        if loop.process.poll() is None:
            loop.end()
        assert loop.find_clusters() == []


@pytest.mark.local_first
def test_each_save_runs_again_and_says_what_changed(start: Callable[..., Loop]) -> None:
    loop = start("train.py", "--nodes", "2")
    loop.wait_for("waiting for changes")
    [cluster] = loop.find_clusters()
    loop.save("train.py", SCRIPT.replace("ones(4)", "ones(8)"))
    loop.wait_for("waiting for changes", 2)
    assert golden(1) in loop.read()
    loop.save("train.py", SCRIPT.replace("dist.all_reduce(total)", "raise ValueError('broken')"))
    loop.wait_for("waiting for changes", 3)
    assert "  changed: passed → failed; note sum 2.0 → (none)" in loop.read()
    loop.save("train.py", SCRIPT)
    loop.wait_for("  changed: failed → passed; note sum (none) → 2.0")
    loop.wait_for("waiting for changes", 4)
    loop.save("train.py", f"{SCRIPT}#\n")
    loop.wait_for("  no change\n")
    loop.wait_for("waiting for changes", 5)
    assert loop.find_clusters() == [cluster]
    assert loop.end() == 0
    assert loop.read().count("train.py changed") == 4


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_the_folder_that_is_shipped_is_the_one_that_is_watched(start: Callable[..., Loop], tmp_path: Path) -> None:
    package = tmp_path / "project" / "src" / "own.py"
    package.parent.mkdir()
    package.write_text("N = 1\n")
    script = tmp_path / "project" / "examples" / "train.py"
    script.parent.mkdir()
    script.write_text("import lab, own\nlab.note('own', own.N)\n")
    loop = start("examples/train.py", "--folder", ".")
    loop.wait_for("waiting for changes")
    loop.save("src/own.py", "N = 2\n")
    loop.wait_for("  changed: note own 1 → 2")
    loop.wait_for("waiting for changes", 2)
    assert loop.end() == 0


@pytest.mark.local_first
def test_a_save_ends_a_hung_run(start: Callable[..., Loop]) -> None:
    loop = start("train.py", "--nodes", "2")
    loop.wait_for("waiting for changes")
    loop.save("train.py", HUNG)
    loop.wait_for("| hangs", 2)
    loop.save("train.py", SCRIPT.replace("ones(4)", "ones(5)"))
    loop.wait_for("train.py changed during the run: stopping it")
    loop.wait_for("waiting for changes", 2)
    assert (loop.read().count("✔ passed"), loop.read().count("∞ hung")) == (2, 0)
    loop.save("train.py", HUNG)
    loop.wait_for("| hangs", 4)
    assert loop.end() == 130


@pytest.mark.local_first
def test_a_broken_file_a_missing_script_and_a_removed_cluster_are_reported_and_survived(
    start: Callable[..., Loop], capfd: pytest.CaptureFixture[str]
) -> None:
    loop = start("one.yaml")
    scenario = "script: train.py\nnodes: 2\nargs: [--from, values.txt]\n"
    assert loop.process.wait(DEADLINE_S) == 2
    assert "one.yaml" in loop.read()
    (loop.folder / "one.yaml").write_text(scenario)
    (loop.folder / "values.txt").write_text("1")
    (loop.folder / ".labignore").write_text("values.txt\nnotes\n")
    loop = start("one.yaml")
    loop.wait_for("waiting for changes")
    loop.save("one.yaml", "script: train.py\nnodes: [2\n")
    loop.wait_for("waiting for changes", 2)
    assert "lab: one.yaml:" in loop.read()
    (loop.folder / "train.py").unlink()
    loop.wait_for("waiting for changes", 3)
    assert main(["down", "--name", loop.name, "--engine", loop.engine]) == 0
    capfd.readouterr()
    (loop.folder / "notes").write_text("not shipped")
    (loop.folder / "train.py").write_text(SCRIPT)
    loop.save("one.yaml", scenario)
    loop.wait_for("  no change\n")
    loop.wait_for("waiting for changes", 4)
    loop.save("one.yaml", scenario.replace("nodes: 2", "nodes: 3"))
    loop.wait_for("  changed: note sum 2.0 → 3.0")
    loop.wait_for("waiting for changes", 5)
    loop.save("values.txt", "2")
    loop.wait_for("values.txt changed ─")
    loop.wait_for("waiting for changes", 6)
    assert "notes changed" not in loop.read()
    assert loop.end() == 0


@pytest.mark.local_first
def test_what_the_lab_writes_into_the_folder_starts_no_run(start: Callable[..., Loop]) -> None:
    loop = start("train.py", "--nodes", "1", "--json", "--runs", "runs", "--outputs", ".")
    loop.save("train.py", f"{SCRIPT}\nopen('model.txt', 'w').write('1')\n")
    deadline = time.monotonic() + DEADLINE_S
    while not (loop.folder / "rank0" / "model.txt").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.5)
    runs = loop.read().count("\n")
    loop.save("train.py", f"{SCRIPT}\nopen('model.txt', 'w').write('22')\n")
    loop.wait_for("\n", runs + 1)
    time.sleep(1.5)
    answers: list[dict[str, Any]] = [json.loads(line) for line in loop.read().splitlines()]
    assert len(answers) == runs + 1
    assert (answers[-1]["verdict"], answers[-1]["changed_files"]) == ("passed", ["train.py"])
    assert answers[-1]["changes"] == ["file rank0/model.txt 1 B → 2 B"]
    assert loop.end() == 0


@pytest.mark.parametrize(
    "words",
    [("--stdin",), ("--interactive", "0"), ("--chaos",), ("--dry-run",), ("--report",), ("other.py",)],
)
def test_options_of_a_single_run_are_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text(SCRIPT)
    assert main(["run", "--watch", "train.py", *words, "--engine", "local"]) == 2
    assert words[0].removesuffix("other.py") in capsys.readouterr().err
    assert not (tmp_path / ".lab").exists()
