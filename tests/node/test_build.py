"""The name of a compiled recorder: no two that differ in what they work with share one."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from lab.node.recorder import build


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the C++ files that may be changed."""
    for path in build.list_sources():
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(build, "_HERE", str(tmp_path))
    return tmp_path


def test_the_name_tells_torch_python_and_source():
    name = build.file_name("2.13.0+cpu")
    assert name.startswith(f"recorder-torch2.13.0+cpu-{sys.implementation.cache_tag}-")
    assert name.endswith(f"-{build.source_hash()}.so")


def test_another_torch_has_another_name():
    assert build.file_name("2.13.0+cpu") != build.file_name("2.13.0+cu128")


def test_the_name_changes_with_every_file_of_the_source(sources: Path):
    names = {build.file_name("2.13.0")}
    files = sorted(sources.iterdir())
    for path in files:
        path.write_text(path.read_text() + "\n")
        names.add(build.file_name("2.13.0"))
    assert len(names) == len(files) + 1


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert build.cache_folder() == "/somewhere/lab/recorder"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert build.cache_folder() == "/home/somebody/.cache/lab/recorder"


HEADERS = "include/torch/csrc/distributed/c10d"


def torch_with(folder: Path, backend: str) -> str:
    """A folder of torch whose Backend has these lines."""
    (folder / HEADERS).mkdir(parents=True)
    (folder / HEADERS / "Backend.hpp").write_text(f"class Backend {{\n{backend}\n}};\n")
    (folder / HEADERS / "Work.hpp").write_text("class Work {\n  virtual bool isCompleted();\n};\n")
    return str(folder)


def test_every_virtual_method_of_the_installed_torch_is_overridden():
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    methods = build.list_virtual_methods((folder / HEADERS / "Backend.hpp").read_text())
    assert {"allreduce", "getBackendName", "recvAnysource", "registerOnCompletionHook"} <= methods
    assert build.explain_unfit("2.13.0", str(folder)) == ""


def test_a_method_that_the_recorder_would_lose_is_named(tmp_path: Path):
    lines = """
  virtual bool supportsSplitting() const {
  // virtual void onlyInAComment() {
  virtual c10::intrusive_ptr<Work> teleport(
      std::vector<at::Tensor>& tensors) {
"""
    why = build.explain_unfit("2.99.0", torch_with(tmp_path, lines))
    assert why.endswith(": teleport")


def test_an_old_torch_does_not_get_the_compiled_recorder(tmp_path: Path):
    assert "2.8" in build.explain_unfit("2.7.1+cpu", str(tmp_path))
    assert build.explain_unfit("2.10.0", torch_with(tmp_path, "")) == ""
