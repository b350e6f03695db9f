"""Everything that ranks can do with each other, with MPI and as many ranks as a test says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
Mpiexec = Callable[..., subprocess.CompletedProcess[str]]


def names_in(*modules: str) -> set[str]:
    """Every check in these modules, without importing them."""
    texts = {name: (HERE / "checks" / f"{name}.py").read_text() for name in modules}
    return {
        f"{name}.{check}" for name in modules for check in re.findall(r"^def (check_\w+)", texts[name], re.MULTILINE)
    }


@pytest.mark.parametrize(
    ("ranks", "modules"),
    [
        pytest.param(2, ("values", "handles", "groups", "training"), id="2", marks=pytest.mark.long),
        pytest.param(3, ("values", "groups", "large"), id="3"),
        pytest.param(3, ("handles",), id="3-handles", marks=pytest.mark.long),
        pytest.param(3, ("training",), id="3-training", marks=pytest.mark.long),
        pytest.param(5, ("values", "handles", "groups", "large", "training"), id="5", marks=pytest.mark.long),
    ],
)
def test_every_check_holds_on_every_rank(
    mpiexec: Mpiexec, tmp_path: Path, ranks: int, modules: tuple[str, ...]
) -> None:
    every_check_holds(mpiexec, tmp_path, ranks, modules)


@pytest.mark.parametrize(
    ("ranks", "modules"),
    [
        pytest.param(2, ("handles", "training"), id="2"),
        pytest.param(3, ("handles",), id="3", marks=pytest.mark.long),
    ],
)
def test_ranks_of_several_machines_message_each_other_and_train(
    mpiexec: Mpiexec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, modules: tuple[str, ...]
) -> None:
    """MPICH treats each rank as on a machine of its own; Open MPI does not know the variable."""
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "1")
    every_check_holds(mpiexec, tmp_path, ranks, modules)


def every_check_holds(mpiexec: Mpiexec, tmp_path: Path, ranks: int, modules: tuple[str, ...]) -> None:
    run = mpiexec(ranks, "run_checks.py", str(tmp_path), *modules)
    found = {
        rank: [json.loads(line) for line in (tmp_path / f"rank{rank}.jsonl").read_text().splitlines()]
        for rank in range(ranks)
    }
    wrong = [
        f"rank {rank}, {one['check']}: {one['wrong']}" for rank, lines in found.items() for one in lines if one["wrong"]
    ]
    assert not wrong, "\n".join(wrong)
    assert [{one["check"] for one in lines} for lines in found.values()] == [names_in(*modules)] * ranks, run.stderr
    assert run.returncode == 0, run.stderr
