"""Scenario files, folders, script blocks and lists of strangers are read, or refused with a place, in seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.features.calls.snapshot import read_calls
from tests.golden import golden
from tests.hostile.limited import Forks

pytestmark = pytest.mark.xdist_group("tests/hostile/test_scenario_files.py")  # see test_dumps.py
MOST_CPU_S = 12
BASE = "script: s.py\nnodes: 2\n"
BLOCK = "# /// script\n{}\n# ///\n"


MOST_MEMORY_BYTES = 2 << 30


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Commands that the kernel ends after 12 s of computing, or beyond 2 GiB of memory."""
    forks, folder = Forks(cpu_s=MOST_CPU_S, memory_bytes=MOST_MEMORY_BYTES), tmp_path_factory.mktemp("learned")
    (folder / "s.py").write_text(BLOCK.format("# dependencies = []") + "print(1)\n")
    (folder / "x.yaml").write_text(BASE)
    forks.learn(folder, ["validate", "x.yaml"], ["validate", "."], ["run", "s.py", "--dry-run"])
    yield forks
    forks.close()


class Folder:
    """A folder with a script, in which commands are called and checked."""

    def __init__(self, path: Path, limited: Forks) -> None:
        self.path, self._limited = path, limited
        path.mkdir()
        (path / "s.py").write_text("print(1)\n")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def answer(self, *words: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        found = self._limited.lab(self.path, *words)
        said = found.output + found.error
        assert found.code in (0, 1, 2), (words, found.code, said[-300:])
        assert "Traceback" not in said
        assert "unexpected error" not in said
        assert not [sign for sign in ("\x1b", "\u202e", "\x00") if sign in said]
        return found.code, said


@pytest.fixture
def folder(tmp_path: Path, limited: Forks) -> Folder:
    return Folder(tmp_path / "here", limited)


SCENARIOS = {
    "aliases of aliases": BASE
    + "env: {a: &a [x,x,x,x,x,x,x,x,x], b: &b [*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,"
    "*b,*b,*b], d: &d [*c,*c,*c,*c,*c,*c,*c], e: [*d,*d,*d,*d,*d,*d,*d]}\n",
    "10 MB": BASE + "learn: |\n  " + "a" * 10_000_000,
    "a million keys": "".join(f"k{i}: 1\n" for i in range(100_000)),
    "unknown keys": "".join(f"nodess{i}: 1\n" for i in range(9_900)),
    "the same key": BASE + "nodes: 3\n" * 9000,
    "deep lists": BASE + "learn: " + "[" * 100_000,
    "deep mappings": BASE + "learn: " + "{a: " * 100_000,
    "a whole number": "script: s.py\nnodes: " + "9" * 100_000,
    "a power of ten": "script: s.py\ntimeout: 1e" + "9" * 100_000,
    "a number in base 60": "script: s.py\nnodes: " + ":".join(["59"] * 100_000),
    "not a number": "script: s.py\ntimeout: .nan",
    "open brackets in a pattern": BASE + "expect:\n  logs: {0: '" + "(" * 50_000 + "'}\n",
    "nested groups in a pattern": BASE + "expect:\n  logs: {0: '" + "(?:" * 2_000 + "a" + ")" * 2_000 + "'}\n",
    "a long pattern": BASE + "expect:\n  logs: {0: '" + "(a|b)*" * 100_000 + "'}\n",
    "a power": BASE + "nproc_per_node: 1\nexpect:\n  notes: {x: ['rank**9**9**9']}\n",
    "a long list": BASE + "nproc_per_node: 1\nexpect:\n  notes: {x: ['[[[rank]*1000]*1000]*1000']}\n",
    "a shift": BASE + "nproc_per_node: 1\nexpect:\n  notes: {x: ['(rank+1) << 10**10']}\n",
    "an attribute": BASE + "nproc_per_node: 1\nexpect:\n  notes: {x: ['rank.__class__.__mro__']}\n",
    "a tag": BASE + "learn: !!python/object/apply:os.system [id]\n",
    "a merge": BASE + "<<: {nodes: 2}\n",
    "acting keys": BASE + '"\\e[31m\\u202enodes": 1\n',
    "a surrogate": BASE + 'learn: "\\ud800"\n',
    "no character": BASE + 'learn: "\\UFFFFFFFF"\n',
    "NUL": BASE + "\0",
    "many documents": "---\n" * 200_000,
    "a device": "script: /dev/zero\n",
    "a script outside": "script: ../../../etc/passwd\n",
    "a pipe": "script: pipe.py\n",
    "a nested marker": BASE + "requirements: ['a; " + "(" * 1000 + 'python_version>"3"' + ")" * 1000 + "']\n",
    "a long requirement": BASE + "requirements: ['" + "a" * 900_000 + "']\n",
}


@pytest.mark.sample(12)  # one rule for all
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_hostile_scenario_is_refused_with_its_place(name: str, folder: Folder) -> None:
    os.mkfifo(folder / "pipe.py")
    (folder / "x.yaml").write_text(SCENARIOS[name])
    code, said = folder.answer("validate", "x.yaml")
    assert code == 2
    assert said.startswith("✘ x.yaml:")
    assert len(said) < 10_000


BLOCKS = {
    "nested": BLOCK.format("# a = " + "[" * 30_000),
    "dotted": BLOCK.format("# a" + ".b" * 100_000 + " = 1"),
    "a dotted value": BLOCK.format("# dependencies" + ".b" * 2_000 + " = 1"),
    "digits": BLOCK.format("# a = " + "9" * 20_000),
    "as many as fit": "# /// script\n# dependencies=[]\n# ///\n" * 27_000,
    "many without an end": "# /// script\n#\n" * 60_000,
    "many of other types": "# /// other\n#\n" * 60_000 + "# /// script\n",
    "a long requirement": BLOCK.format("# dependencies = ['" + "a" * 900_000 + "']"),
    "a nested marker": BLOCK.format("# dependencies = ['a; " + "(" * 20_000 + "']"),
    "acting": BLOCK.format("# dependencies = ['a\x1b[31m\u202e']"),
    "numbers": BLOCK.format("# dependencies = [" + "1," * 10_000 + "]"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_hostile_script_block_is_refused_with_its_line(name: str, folder: Folder) -> None:
    (folder / "b.py").write_text(BLOCKS[name])
    code, said = folder.answer("run", "b.py", "--dry-run")
    assert code == 2
    assert said.startswith("lab: b.py:")
    assert len(said) < 10_000


def test_pipes_and_links_to_devices_in_a_folder_are_no_scenarios(folder: Folder) -> None:
    os.mkfifo(folder / "scenario.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    (folder / "self.yaml").symlink_to("self.yaml")
    (folder / "here").symlink_to(".")
    (folder / "x.yaml").write_text(BASE)
    assert folder.answer("validate", ".") == (0, "✔ x.yaml\n")
    (folder / "x.yaml").unlink()
    for verb in ("test", "validate", "run"):
        code, said = folder.answer(verb, ".")
        assert code == 2
        assert ". holds no scenarios" in said


@pytest.mark.parametrize("words", [["run", "@nothing", "--dry-run"], ["learn", "nothing"], ["scenarios"]])
def test_pipes_and_devices_among_own_lessons_are_not_read(words: list[str], folder: Folder) -> None:
    (folder / "scenarios").mkdir()
    os.mkfifo(folder / "scenarios" / "pipe.yaml")
    (folder / "scenarios" / "zero.yaml").symlink_to("/dev/zero")
    folder.answer(*words)


def test_a_folder_of_too_many_scenarios_is_refused(folder: Folder) -> None:
    for most, refusal in ((2000, golden(2)), (20_000, golden(1))):
        for number in range(most + 1):
            (folder / f"x{number}.yaml").write_text(BASE)
        code, said = folder.answer("validate", ".")
        assert code == 2
        assert refusal in said


@pytest.mark.parametrize("text", ["a" * 5_000_000, "a*b*c\n" * 2_000, "[" * 100_000], ids=["line", "lines", "brackets"])
def test_a_long_labignore_is_refused(text: str, folder: Folder) -> None:
    from lab.errors import UsageError
    from lab.run.snapshot import read_snapshot

    for name in (".labignore", ".gitignore"):
        (folder / name).write_text(text)
        with pytest.raises(UsageError, match=golden(1)):
            read_snapshot(folder.path)
        (folder / name).unlink()


SNAPSHOTS: dict[str, Callable[[], str]] = {
    "many ranks": lambda: "ranks " + ", ".join(["0-1048575"] * 50_000) + ":\n  all_reduce\n",
    "many times": lambda: (
        "rank 0:\n" + "".join(f"{'  ' * n}999999999 times:\n" for n in range(1, 50)) + "  " * 50 + "x\n"
    ),
    "nested": lambda: (
        "rank 0:\n" + "".join(f"{' ' * n}2 times:\n" for n in range(1, 2000)) + " " * 2000 + "all_reduce\n"
    ),
    "nothing": lambda: "#\n" * 500_000,
    "no snapshot": lambda: "\x1b[31m" * 100_000,
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_hostile_snapshot_of_calls_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(LabError, match=golden(1)) as raised:
        read_calls(SNAPSHOTS[name](), "x.calls")
    assert "\x1b" not in str(raised.value)
