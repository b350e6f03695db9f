"""What depends on the version of torch: what scenarios need of it, and what c10d does from torch 2.14 on.

`dev/torch VERSION tests/engines/test_torch_versions.py` runs these with another one.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Result
from lab.node.messages.agent import is_older
from lab.node.recorder import build
from tests.golden import golden

TORCH = importlib.metadata.version("torch")
RECORDERS = ["python", *(["compiled"] if any(Path(build.cache_folder()).glob(f"recorder-torch{TORCH}*")) else [])]
Lab = Callable[..., tuple[int, str, str]]
Run = Callable[..., Result]

pytestmark = [pytest.mark.parametrize("engine", ["local"], indirect=True), pytest.mark.half]


def scenario_that_needs(folder: Path, need: str) -> Path:
    """A scenario that passes, and needs something."""
    (folder / "hello.py").write_text("import torch\nprint('hello')\n")
    (folder / "hello.yaml").write_text(f"script: hello.py\nnodes: 1\nneeds: [{need}]\n")
    return folder / "hello.yaml"


def test_a_suite_skips_what_needs_a_newer_torch_and_says_which(lab: Lab, tmp_path: Path):
    file = scenario_that_needs(tmp_path, "torch>=99.0")
    code, output, _ = lab("test", str(file), "--engine", "local", "--json", "--runs", str(tmp_path / "runs"))
    outcome, summary = map(json.loads, output.splitlines())
    assert (code, summary["counts"], outcome["status"]) == (0, {"skipped": 1}, "skipped")
    assert golden(1) in outcome["reason"]
    assert TORCH in outcome["reason"]


def test_a_run_says_which_torch_it_needs(lab: Lab, tmp_path: Path):
    file = scenario_that_needs(tmp_path, "torch>=99.0")
    code, _, errors = lab("run", str(file), "--engine", "local", "--runs", str(tmp_path / "runs"))
    assert code == 2
    assert golden(1) in errors


def test_what_the_torch_of_the_nodes_has_is_no_hindrance(lab: Lab, tmp_path: Path):
    file = scenario_that_needs(tmp_path, "torch>=2.4")
    assert lab("run", str(file), "--engine", "local", "--runs", str(tmp_path / "runs"))[0] == 0


def test_nodes_with_a_torch_that_is_too_old_are_refused(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stub = Path(__file__).parents[1] / "stub" / "torch"
    shutil.copytree(stub, tmp_path / "torch")
    text = (stub / "__init__.py").read_text()
    (tmp_path / "torch" / "__init__.py").write_text(text.replace('"2.4.0"', '"2.3.1+cpu"'))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    name = f"t-{uuid.uuid4().hex[:12]}"
    code, _, errors = lab("up", "--engine", "local", "--nodes", "1", "--name", name)
    assert code == 2
    assert golden(1) in errors
    assert golden(2, name) in lab("status", "--name", name)[1]


@pytest.mark.parametrize("recorder", ["off", "bogus"])
def test_a_run_without_a_trace_says_so_and_claims_nothing_about_calls(recorder: str, lab: Lab, run: Run):
    result = run("c10d_hooks.py", "counts_nothing", env={"LAB_RECORDER": recorder})
    assert result.passed, result.reason
    sentence = golden(1) if recorder == "off" else golden(2)
    assert sentence in lab("show", str(result.path))[1]
    assert golden(3) not in " ".join(lab("explain", str(result.path))[1].split())


if not is_older(TORCH, "2.14"):

    @pytest.mark.parametrize("recorder", RECORDERS)
    def test_hooks_of_groups_see_each_call_that_is_on_record(recorder: str, run: Run):
        result = run("c10d_hooks.py", "counts_calls", env={"LAB_RECORDER": recorder})
        assert result.passed, result.reason
        assert result.path is not None
        for rank, file in zip(result.ranks, sorted((result.path / "trace").iterdir()), strict=True):
            lines: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
            recorded = [line["op"] for line in lines if line["k"] == "begin"]
            assert lines[0].get("recorder", recorder) == recorder
            assert len(recorded) - 1 == len(rank.notes["seen"]), (recorded, rank.notes["seen"])
            assert rank.notes["after"] == 1  # of the last barrier

    @pytest.mark.parametrize("recorder", RECORDERS)
    def test_the_check_for_nan_raises_as_it_does_without_the_lab(recorder: str, run: Run):
        env = {"LAB_RECORDER": recorder, "TORCH_DIST_NAN_CHECK": "1"}
        result = run("c10d_hooks.py", "sends_nan", env=env)
        assert result.verdict == "failed"
        assert "NaN" in result.reason

    @pytest.mark.parametrize("recorder", RECORDERS)
    def test_a_group_can_be_reconfigured(recorder: str, run: Run):
        result = run("c10d_hooks.py", "turns_the_ranks_round", env={"LAB_RECORDER": recorder})
        assert result.passed, result.reason
        assert [rank.notes["rank"] for rank in result.ranks] == [2, 1, 0]
        assert [(rank.notes["sum"], rank.notes["supported"]) for rank in result.ranks] == [(3.0, True)] * 3
