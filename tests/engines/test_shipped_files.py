"""Which files a run takes along, and how a script finds them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.run.collect import Observer
from lab.spec.load import load_scenario
from tests.engines.conftest import written
from tests.golden import golden

Run = Callable[..., Result]
MIB = 2**20


class Told(Observer):
    """Keeps what a person is told while a run is prepared."""

    def __init__(self) -> None:
        self.progressed: list[str] = []

    def progress(self, text: str) -> None:
        self.progressed.append(text)


@pytest.mark.local_first
def test_a_plain_script_gets_its_arguments(run: Run, tmp_path: Path) -> None:
    script = written(tmp_path / "s", "import sys\nprint(sys.argv)")

    result = run(script, "--epochs", "3", "a b", "", "ä", nodes=1)

    assert result.ranks[0].log == golden(1)


@pytest.mark.local_first
@pytest.mark.parametrize("name", ["-leading dash, ünicode ✓, quotes ' and \", $HOME and percent %s"])
@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_the_folder_of_a_script_may_have_any_name(run: Run, tmp_path: Path, name: str, cold: bool) -> None:
    script = written(tmp_path / name, "import beside\nprint(beside.VALUE, open('dätä file.txt').read())")
    (tmp_path / name / "beside.py").write_text("VALUE = 'imported'")
    (tmp_path / name / "dätä file.txt").write_text("read")

    result = run(script, nodes=1, cold=cold)

    assert result.passed, result.reason + result.ranks[0].log
    assert result.ranks[0].log == "imported read\n"


@pytest.mark.local_first
def test_a_script_may_have_a_name_with_spaces(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s" / "my träining script.py"
    path.parent.mkdir()
    path.write_text("raise ValueError('here')")

    result = run(path, nodes=1)

    assert result.reason == golden(1)


@pytest.mark.local_first
def test_everything_below_the_folder_is_shipped_but_hidden_folders_and_caches(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import os\nprint(sorted(os.path.join(at, name)[2:] for at, _, names in os.walk('.') for name in names))\n",
    )
    shipped = ["data.bin", "package/__init__.py", "package/deep/er/x.txt", ".env"]
    left = [
        ".git/config",
        ".venv/bin/python",
        "__pycache__/main.cpython-311.pyc",
        "package/__pycache__/x.pyc",
        "venv/a",
    ]
    for name in (*shipped, *left):
        (tmp_path / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "s" / name).write_bytes(b"\0\xff")

    result = run(script, nodes=1)

    assert result.ranks[0].log == f"{sorted(['main.py', *shipped])}\n"


@pytest.mark.local_first
def test_links_within_the_folder_arrive_as_links_and_those_that_lead_out_are_told(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import os\nfrom common.tools import VALUE\n"
        "print(VALUE, os.readlink('link.txt'), open('link.txt').read(), os.path.lexists('out'))\n",
    )
    (tmp_path / "s" / "data").mkdir()
    (tmp_path / "s" / "data" / "tools.py").write_text("VALUE = 'common'")
    (tmp_path / "s" / "data" / "x.txt").write_text("from inside")
    (tmp_path / "s" / "common").symlink_to("data")
    (tmp_path / "s" / "link.txt").symlink_to(tmp_path / "s" / "data" / "x.txt")
    (tmp_path / "s" / "out").symlink_to("/etc/passwd")
    told = Told()

    result = run(script, nodes=1, observer=told)

    assert result.passed, result.reason
    assert result.ranks[0].log == golden(1)
    assert told.progressed == [golden(2)]


def test_files_keep_their_modes_and_contents(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import hashlib, os, subprocess\n"
        "print(hashlib.sha256(open('data.bin', 'rb').read()).hexdigest())\n"
        "print(subprocess.check_output(['./tool.sh'], text=True).strip())\n",
    )
    data = bytes(range(256)) * 40_000  # 10 MB
    (tmp_path / "s" / "data.bin").write_bytes(data)
    (tmp_path / "s" / "tool.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "s" / "tool.sh").chmod(0o755)

    result = run(script, nodes=2)

    assert {rank.log for rank in result.ranks} == {f"{hashlib.sha256(data).hexdigest()}\nran\n"}


@pytest.mark.local_first
def test_a_script_in_a_subfolder_of_its_scenario_runs_in_its_own_folder(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    written(tmp_path / "scenario" / "deep", "import os\nprint(sorted(os.listdir()))")
    (tmp_path / "scenario" / "deep.yaml").write_text("script: deep/main.py\nnodes: 1\n")

    result = cluster.run(load_scenario(tmp_path / "scenario" / "deep.yaml"), runs=tmp_path / "runs")

    assert result.ranks[0].log == "['main.py']\n"
