"""What a script needs of its backend, and which backend has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.spec.keys import BACKENDS, NEEDS, check_backend, lacking


def test_a_backend_that_the_lab_does_not_have_is_refused_with_what_was_meant():
    with pytest.raises(UsageError, match=r"no backend 'glo' \(did you mean 'gloo'\?\); allowed: gloo, mpi and nccl"):
        check_backend("glo")


def test_what_a_script_needs_is_seen_in_its_text(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text("import torch.distributed as dist\ndist.monitored_barrier()\n")
    assert lacking("gloo", script, ()) == ""
    assert "only implemented for GLOO" in lacking("mpi", script, ())


def test_what_a_scenario_says_counts_too(tmp_path: Path):
    for need in NEEDS.values():
        for backend in BACKENDS:
            reason = lacking(backend, tmp_path / "none.py", [need.name])
            assert bool(reason) == (backend in need.lacking)
            assert need.lacking.get(backend, "") in reason


def test_every_need_is_one_that_some_backend_lacks():
    for need in NEEDS.values():
        assert need.lacking, need.name
        assert need.lacking.keys() <= set(BACKENDS)
