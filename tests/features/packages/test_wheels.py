"""Wheels that a Python lacks, out of a folder: for another Python than this one too, and nothing of them is run."""

from __future__ import annotations

import os
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.features.packages import pip_program
from lab.features.packages.stores import key_of, lock_preparation
from lab.features.packages.wheels import Target, fetch_wheels
from tests.features.packages.made import python_with
from tests.golden import golden
from tests.wheel_files import make_wheel

pytestmark = pytest.mark.half


@pytest.fixture
def target() -> Target:
    """A Python of another version, on another machine, that has torch."""
    found = python_with({"torch": "2.8.0"}, "image x")
    other = {
        "python": "3.9",
        "abi": "cp39",
        "platforms": ["manylinux_2_31_aarch64", "manylinux_2_17_aarch64", "linux_aarch64"],
        "markers": {**found.markers, "python_version": "3.9", "platform_machine": "aarch64", "sys_platform": "linux"},
        "executable": "/opt/py/bin/python3",
    }
    return Target(**{**vars(found), **other})


def fetch(target: Target, folder: Path, *requirements: str) -> list[str]:
    folder.mkdir()
    return [path.name for path in fetch_wheels(target, requirements, folder)]


def test_wheels_are_for_the_python_that_they_are_for(index: Path, target: Target, tmp_path: Path) -> None:
    make_wheel(
        index, "labone", requires=["torch", "labold; python_version < '3.10'", "labnew; python_version >= '3.10'"]
    )
    make_wheel(index, "labold", tag="cp39-cp39-manylinux_2_17_aarch64")
    make_wheel(index, "labold", tag="cp39-cp39-manylinux_2_17_x86_64")
    make_wheel(index, "torch", "2.9.0")
    make_wheel(index, "torch", "2.8.0")
    found = fetch(target, tmp_path / "work", "labone")
    assert found == ["labold-1.0-cp39-cp39-manylinux_2_17_aarch64.whl", "labone-1.0-py3-none-any.whl"]


def test_nothing_of_a_source_distribution_is_run(index: Path, target: Target, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    source = tmp_path / "labevil-1.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        archive.add(tmp_path / "setup.py", "labevil-1.0/setup.py")
    make_wheel(index, "labone", requires=[f"labevil @ {source.as_uri()}"])
    with pytest.raises(LabError, match=golden(1)):
        fetch(target, tmp_path / "work", "labone")
    assert not (tmp_path / "ran").exists()


def test_wheels_that_are_named_by_path_count_by_what_they_hold(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "labone")
    named = [f"labone @ {wheel.as_uri()}"]
    before = key_of("base", named)
    assert before == key_of("base", named)
    assert before != key_of("other", named)
    make_wheel(tmp_path, "labone", files={"more.py": ""})
    assert before != key_of("base", named)
    wheel.unlink()
    with pytest.raises(LabError, match=golden(1)):
        key_of("base", named)


def test_what_is_made_is_made_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("lab.features.packages.stores._WAIT_S", 0.0)
    said: list[str] = []
    first, second = lock_preparation("key", said.append), lock_preparation("other", said.append)
    with first, second, pytest.raises(LabError, match="another command"), lock_preparation("key", said.append):
        pass
    assert said == [golden(1)]
    with lock_preparation("key", said.append):
        pass


def test_the_folder_to_work_in_is_gone_afterwards_and_so_is_that_of_one_who_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    left = tmp_path / "lab" / "fetching" / "killed"
    with lock_preparation("first", lambda _: None) as first:
        left.mkdir()
        (left / "torch.whl").write_text("")
        with lock_preparation("second", lambda _: None) as second:
            assert first.is_dir()
            assert second.is_dir()
            assert not left.exists()
    assert not [*left.parent.iterdir()]


def test_where_an_environment_has_no_pip_the_one_that_comes_with_python_is_taken(tmp_path: Path) -> None:
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    try:
        import ensurepip

        comes = [*Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")]
    except ImportError:
        comes = []
    program = Path(pip_program.__file__).read_text()
    command = [str(tmp_path / "bare" / "bin" / "python"), "-c", program, "{}", "python", "--version"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == (0 if comes else pip_program.NO_PIP), ended.stderr
    assert ended.stdout.startswith("pip ") is bool(comes)
