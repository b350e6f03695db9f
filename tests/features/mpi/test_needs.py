"""What a script needs of its backend, and which backend has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.mpi.backends import NEEDS, find_lacking, find_needed_torch
from lab.spec.keys import BACKENDS
from lab.spec.scenario import Scenario
from tests.golden import golden


def test_what_a_script_needs_is_seen_in_its_text(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text("import torch.distributed as dist\ndist.monitored_barrier()\n")
    scenario = Scenario(name="train", script=script)
    assert find_lacking(scenario, "gloo") == ""
    assert golden(1) in find_lacking(scenario, "mpi")


def test_what_a_scenario_says_counts_too(tmp_path: Path):
    for need in NEEDS.values():
        scenario = Scenario(name="s", script=tmp_path / "none.py", extra={"needs": (need.name,)})
        for backend in BACKENDS:
            reason = find_lacking(scenario, backend)
            assert bool(reason) == (backend in need.missing)
            assert need.missing.get(backend, "") in reason


def test_every_need_is_one_that_some_backend_lacks():
    for need in NEEDS.values():
        assert need.missing or need.torch, need.name
        assert need.missing.keys() <= set(BACKENDS)


@pytest.mark.parametrize(
    ("needs", "least", "user"),
    [
        (("gloo",), "", ""),
        (("gloo", "all_to_all"), NEEDS["all_to_all"].torch, "all_to_all over gloo"),
        (("torch>=2.6",), "2.6", "s"),
        (("torch>=2.10", "averages", "torch>=2.9"), "2.10", "s"),
    ],
)
def test_the_newest_torch_that_any_need_has_counts(tmp_path: Path, needs: tuple[str, ...], least: str, user: str):
    scenario = Scenario(name="s", script=tmp_path / "none.py", extra={"needs": needs})
    assert find_needed_torch(scenario, "gloo") == {"least_torch": least, "torch_user": user}


def test_what_gloo_lacks_is_no_matter_over_mpi(tmp_path: Path):
    scenario = Scenario(name="s", script=tmp_path / "none.py", extra={"needs": ("all_to_all",)})
    assert find_needed_torch(scenario, "mpi") == {"least_torch": "", "torch_user": ""}
