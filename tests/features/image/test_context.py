"""Deciding a build of the node image, and what is sent to the engine for it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.make_image import recipe_of
from lab.errors import ImageError
from lab.features.image import make as module
from lab.features.image.make import find_dockerfile, plan_build
from lab.node.recorder import build
from tests.golden import golden

LONG = f"markupsafe-3.0.4-cp311-cp311-{'.'.join(['manylinux2014_x86_64'] * 5)}.whl"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "räder und mehr"
    folder.mkdir()
    (folder / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"t" * 3_000_000)
    (folder / "numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"n")
    (folder / LONG).write_bytes(b"m" * 512)
    (folder / "notes.txt").write_text("not a wheel")
    return folder


def test_nothing_given_means_the_dockerfiles_own_defaults():
    context = plan_build(environ={})
    assert context.build_args == {}
    assert context.wheels == ()
    assert golden(1) in context.dockerfile.read_text()


def test_the_checkouts_dockerfile_is_found():
    assert find_dockerfile() == Path(__file__).parents[3] / "Dockerfile"


def test_arguments_win_over_the_environment():
    environ = {"LAB_IMAGE_BASE": "env:1", "PIP_INDEX_URL": "http://env", "PIP_TRUSTED_HOST": "env", "OTHER": "x"}
    context = plan_build(base="arg:1", torch="2.5", environ=environ)
    assert context.build_args == {
        "BASE": "arg:1",
        "TORCH": "2.5",
        "PIP_INDEX_URL": "http://env",
        "PIP_TRUSTED_HOST": "env",
    }


def test_the_environment_names_base_and_wheels(wheels: Path):
    context = plan_build(
        environ={"LAB_IMAGE_BASE": "env:1", "LAB_IMAGE_BUILD_BASE": "env:2", "LAB_IMAGE_WHEELS": str(wheels)}
    )
    assert context.build_args == {"BASE": "env:1", "BUILD_BASE": "env:2", "TORCH": "2.13.0"}
    assert [path.name[:5] for path in context.wheels] == ["marku", "numpy", "torch"]


def test_the_context_is_an_archive_that_tar_reads(wheels: Path):
    context = plan_build(wheels=wheels, environ={})
    with tarfile.open(fileobj=io.BytesIO(b"".join(context.tar()))) as archive:
        members = {member.name: member.size for member in archive}
        dockerfile = archive.extractfile("Dockerfile")
        assert dockerfile is not None
        assert dockerfile.read() == find_dockerfile().read_bytes()
    recorder = {f"lab/node/recorder/{Path(path).name}" for path in (build.__file__, *build.list_sources())}
    assert recorder > {"lab/node/recorder/build.py", "lab/node/recorder/native.cpp"}
    mpi = {name for name in members if name.startswith("mpi/")}
    assert {name: members[name] for name in members.keys() - recorder - mpi} == {
        "wheels": 0,
        "Dockerfile": find_dockerfile().stat().st_size,
        f"wheels/{LONG}": 512,
        "wheels/numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl": 1,
        "wheels/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": 3_000_000,
    }


def test_the_context_is_read_in_pieces(wheels: Path):
    (wheels / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"t" * 40_000_000)
    assert max(map(len, plan_build(wheels=wheels, environ={}).tar())) <= 1 << 20


def test_without_wheels_the_folder_is_there_all_the_same():
    archive = tarfile.open(fileobj=io.BytesIO(b"".join(plan_build(environ={}).tar())))
    assert [(member.name, member.isdir()) for member in archive][:2] == [("wheels", True), ("Dockerfile", False)]


def test_the_recipe_changes_with_what_goes_into_the_image_and_with_nothing_else(wheels: Path):
    def recipe(environ: Mapping[str, str] = {}, **asked: object) -> str:
        return recipe_of(plan_build(wheels=wheels, environ=environ, **asked))  # type: ignore[arg-type]

    first = recipe(base="a:1")
    assert recipe(base="a:1", environ={"PIP_INDEX_URL": "http://elsewhere"}) == first
    assert recipe(base="b:1") != first
    assert recipe(base="a:1", build_base="b:1") != first
    (wheels / "numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"other")
    assert recipe(base="a:1") != first


def test_the_recipe_changes_with_the_source_of_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "native.cpp"
    monkeypatch.setattr(build, "list_sources", lambda: [str(source)])
    source.write_text("int first;")
    first = recipe_of(plan_build(environ={}))
    source.write_text("int other;")
    assert recipe_of(plan_build(environ={})) != first


def test_the_package_for_mpi_is_sent_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = {name for name in plan_build(environ={}).sources if name.startswith("mpi/")}
    assert {"mpi/pyproject.toml", "mpi/README.md", "mpi/torch_mpi/__init__.py", "mpi/torch_mpi/py.typed"} <= names
    assert not any("tests" in name for name in names)
    (tmp_path / "torch_mpi").mkdir()
    source = tmp_path / "torch_mpi" / "a.py"
    dockerfile = find_dockerfile()
    monkeypatch.setattr(module, "bundled_path", {"mpi": tmp_path, "Dockerfile": dockerfile}.__getitem__)
    source.write_text("first")
    first = recipe_of(plan_build(environ={}))
    source.write_text("other")
    assert recipe_of(plan_build(environ={})) != first


def test_a_missing_folder_of_wheels_is_named(tmp_path: Path):
    with pytest.raises(ImageError, match=golden(1)):
        plan_build(wheels=tmp_path / "gone", environ={})


def test_wheels_without_torch_are_refused(tmp_path: Path):
    (tmp_path / "numpy-2.0.0-py3-none-any.whl").touch()
    (tmp_path / "torchvision-1.0-py3-none-any.whl").touch()
    with pytest.raises(ImageError, match=golden(1)) as caught:
        plan_build(wheels=tmp_path, environ={})
    assert "pip download" in caught.value.hint


def test_two_versions_of_torch_need_a_choice(wheels: Path):
    (wheels / "torch-2.5.1-cp311-cp311-linux_x86_64.whl").touch()
    with pytest.raises(ImageError, match=golden(1)):
        plan_build(wheels=wheels, environ={})
    assert plan_build(wheels=wheels, torch="2.5.1", environ={}).build_args["TORCH"] == "2.5.1"
