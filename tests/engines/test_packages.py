"""Packages that nodes do not have: fetched as wheels, and there for every rank."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster, LabError
from lab.engine.packages import Prepared, package_store
from lab.engine.select import select_engine
from tests.engines.conftest import written
from tests.golden import golden
from tests.wheel_files import make_wheel

pytestmark = pytest.mark.half

SCRIPT = """\
# /// script
# dependencies = ["labtestone{version}"]
# ///
import labtestone, labtesttwo
from lab import note
note("versions", [labtestone.VERSION, labtesttwo.VERSION])
"""


@pytest.fixture
def turn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test at a time: all see the images of the one Docker engine, and those of the same packages are the same."""
    with (tmp_path_factory.getbasetemp().parent / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def prepared(
    engine: str, turn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[Prepared]]]:
    """What a test makes of packages; it is removed afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    subject = package_store(select_engine(engine)[0])  # type: ignore[arg-type]
    before = {one.name for one in subject.prepared()}

    def made() -> list[Prepared]:
        own = ("labtestone", "labtesttwo")  # tests in other processes prepare packages with other names
        ours = [one for one in subject.prepared() if any(name.startswith(own) for name in one.requirements)]
        return [one for one in ours if one.name not in before]

    yield made
    for one in made():
        assert subject.discard(one) == ""


def alone(engine: str) -> Cluster:
    return Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine=engine)  # type: ignore[arg-type]


@pytest.mark.usefixtures("torch_stub")
def test_a_script_names_its_packages_and_they_are_fetched_once(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]], tmp_path: Path
) -> None:
    make_wheel(index, "labtestone", "1.0")
    make_wheel(index, "labtestone", "2.0", requires=["labtesttwo>=3", "torch>=2"])
    make_wheel(index, "labtesttwo", "3.5")
    script = written(tmp_path / "s", SCRIPT.format(version=">=1"))

    result = alone(engine).run(script, nodes=1, nproc_per_node=2, runs=tmp_path / "runs")

    assert result.passed, result.reason
    assert [rank.notes["versions"] for rank in result.ranks] == [["2.0", "3.5"]] * 2
    (one,) = prepared()
    assert one.requirements == ["labtestone>=1"]
    assert one.added == ["labtestone-2.0-py3-none-any.whl", "labtesttwo-3.5-py3-none-any.whl"]

    for path in index.iterdir():
        path.unlink()
    name = package_store(select_engine(engine)[0]).prepare(None, one.requirements, announce=pytest.fail)  # type: ignore[arg-type]
    assert prepared() == [one]
    assert name == one.name


@pytest.mark.local_first
def test_what_cannot_be_had_is_said_and_nothing_is_left(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]], tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    evil = tmp_path / "source" / "labtestevil-1.0.tar.gz"
    evil.write_bytes(b"not even an archive")
    make_wheel(index, "labtestone", requires=["torch<2"])
    make_wheel(index, "labtesttwo", requires=[f"labtestevil @ {evil.as_uri()}"])
    subject = package_store(select_engine(engine)[0])  # type: ignore[arg-type]
    said = []

    for asked in (["torch<2"], ["labtestone"], ["labtestnone"], ["labtesttwo"]):
        with pytest.raises(LabError) as refused:
            subject.prepare(None, asked, announce=lambda _: None)
        said.append(refused.value.message)
        assert refused.value.exit_code == 2 or asked == ["labtesttwo"], refused.value.message

    assert said[0].startswith(golden(1))
    assert said[0].endswith(" and keeps it")
    assert "labtestone 1.0 needs torch<2" in said[1]
    assert "keeps it" in said[1]
    assert said[2].startswith(golden(2))
    assert prepared() == []
    assert not [*tmp_path.glob("cache/lab/**/fetching-*")]


@pytest.mark.local_first
def test_a_cluster_that_is_up_has_the_packages_or_refuses(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]], tmp_path: Path
) -> None:
    wheel = make_wheel(index, "labtestone", "1.0")
    make_wheel(index, "labtesttwo", "1.0")
    text = "import labtestone, labtesttwo, torch, numpy"
    script = written(
        tmp_path / "s", f"# /// script\n# dependencies = ['torch>=2', 'numpy', 'labtestone']\n# ///\n{text}"
    )
    other = written(tmp_path / "o", "# /// script\n# dependencies = ['labtestnone']\n# ///\n")
    cluster = Cluster(
        1,
        name=f"t-{uuid.uuid4().hex[:12]}",
        engine=engine,  # type: ignore[arg-type]
        requirements=[f"labtestone @ {wheel.as_uri()}", "labtesttwo==1.0"],
    )
    with cluster:
        result = cluster.run(script, runs=tmp_path / "runs")
        with pytest.raises(LabError) as refused:
            cluster.run(other, runs=tmp_path / "runs")
        assert cluster.up()[1] is False

    assert result.passed, result.reason
    assert refused.value.exit_code == 2
    assert refused.value.message == golden(1, cluster.name)
    assert len(prepared()) == 1


@pytest.mark.long
def test_an_index_that_answers_has_what_scripts_name(
    engine: str, prepared: Callable[[], list[Prepared]], tmp_path: Path
) -> None:
    answers = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(tmp_path / "tried"), "tqdm"],
        capture_output=True,
        timeout=120,
    )
    if answers.returncode:
        pytest.skip("needs a package index that answers")
    text = "# /// script\n# dependencies = ['tqdm>=4']\n# ///\nimport tqdm\n"
    cluster = alone(engine)

    result = cluster.run(written(tmp_path / "s", text), nodes=1, runs=tmp_path / "runs")

    assert result.passed, result.reason
    assert any("tqdm" in wheel for one in prepared() for wheel in one.added)
    for one in prepared():
        assert package_store(select_engine(engine)[0]).discard(one) == ""  # type: ignore[arg-type]
