"""Packages that a scenario or a script names: which lines are requirements, and what several lists make together."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import ScenarioError, UsageError
from lab.features.packages.requirements import checked_requirements, merge_requirements, read_block, read_file
from lab.spec.load import load_scenario, scenario_from_script
from tests.golden import golden
from tests.wheel_files import make_wheel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_read_as_pip_reads_it(folder: Path) -> None:
    wheel = make_wheel(folder, "mine")
    written(
        "more/dev.txt", "Pytest_X [b,a] >= 2, <3 ; python_version < '3.11'  # comment\n../mine-1.0-py3-none-any.whl\n"
    )
    path = written(
        "requirements.txt", "# head\n\ntqdm\\\n  >=4 # no more\n-r more/dev.txt\n--requirement=requirements.txt\n"
    )
    assert read_file(path) == (
        f"mine @ {wheel.as_uri()}",
        'pytest-x[a,b]<3,>=2; python_version < "3.11"',
        "tqdm>=4",
    )


def test_every_line_that_is_none_is_named_with_its_file(folder: Path) -> None:
    written("other.txt", "ok\n-e .\n")
    path = written(
        "requirements.txt", "tqdm\n--index-url http://x\nfoo bar\n-r other.txt\n-r absent.txt\nx --hash=sha256:0\n"
    )
    with pytest.raises(ScenarioError) as refused:
        read_file(path)
    assert [line.split(";")[0] for line in refused.value.message.splitlines()] == [
        golden(1),
        golden(2),
        golden(3),
        golden(4),
        golden(5),
    ]


def test_of_a_package_that_two_lists_name_the_later_one_counts() -> None:
    first = ("a<2; python_version<'3'", "a>2; python_version>'3'", "b")
    assert merge_requirements(first) == first
    assert merge_requirements(first, ("c", "a==1")) == ("a==1", "b", "c")


def test_what_somebody_names_in_python_is_checked(folder: Path) -> None:
    assert checked_requirements(["B >=1", "a", "a"]) == ("a", "b>=1")
    with pytest.raises(UsageError, match=golden(1)):
        checked_requirements(["a b"])


BLOCK = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.9"
# dependencies = [
#   "TQDM",
#
#   "accelerate>=1",
# ]
# ///
import tqdm
"""


def test_the_block_of_a_script_is_read_and_the_scenario_wins_over_it(folder: Path) -> None:
    written("train.py", BLOCK)
    written("s.yaml", "script: train.py\nrequirements: ['tqdm==4.1', numpy]\n")
    assert scenario_from_script(Path("train.py")).requirements == ("accelerate>=1", "tqdm")
    assert load_scenario(Path("s.yaml")).requirements == ("accelerate>=1", "numpy", "tqdm==4.1")


@pytest.mark.parametrize(
    "text", ["", "import torch\n", "# /// other\n# a\n# ///\n", "s = '# /// script'\n", BLOCK[:22]]
)
def test_a_script_without_a_block_needs_nothing(folder: Path, text: str) -> None:
    assert read_block(written("train.py", text)) == ()


def test_line_ends_of_other_systems_are_as_good(folder: Path) -> None:
    Path("train.py").write_bytes(BLOCK.replace("\n", "\r\n").encode())
    assert read_block(Path("train.py")) == ("accelerate>=1", "tqdm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x\n# /// script\n# a = 1\nx\n",
            "train.py:2:1: found a block '# /// script' without an end; allowed: comments",
        ),
        ("# /// script\n# a = \n# ///\n", "train.py:2:"),
        (f"{BLOCK}\n{BLOCK}", "train.py:13:1: found a second block '# /// script', after line 2; allowed: one"),
        ("# /// script\n# dependencies = 'a'\n# ///\n", "train.py:2:1: dependencies: found 'a'; allowed: a list"),
        ("# /// script\n# dependencies = [\n#  'a b']\n# ///\n", "train.py:3:1: dependencies: found 'a b' ("),
        (
            "# /// script\n# dependencies = ['a', 3]\n# ///\n",
            "train.py:2:1: dependencies: found 3; allowed: a requirement",
        ),
    ],
)
def test_a_block_that_cannot_be_read_is_refused_with_its_line(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_block(written("train.py", text))
    assert refused.value.message.startswith(message)
    assert "\n" not in refused.value.message
