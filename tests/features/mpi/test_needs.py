"""What a script needs of its backend, and which backend has it."""

from __future__ import annotations

from pathlib import Path

from lab.features.mpi.needs import NEEDS, find_lacking
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
        assert need.missing, need.name
        assert need.missing.keys() <= set(BACKENDS)
