"""The lab: a distributed-PyTorch laboratory.

The public Python API is `Cluster`, `Scenario`, `Result`, `LabError`, `OutputError`, `distributed`, `equal`, `learn`,
`note`, `read_output` and `run_suite`; everything is imported when it is first used, so that `import lab` costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"
DISTRIBUTION = "torch-lab"
"""What pip calls the lab: `lab` on the public index is another project, which has a package `lab` too."""

TYPE_CHECKING = False  # not from typing, which takes longer to import than all else that `lab --help` needs
if TYPE_CHECKING:
    from typing import Any

    from lab.cluster import Cluster
    from lab.errors import LabError
    from lab.node.rank.note import note
    from lab.record.result import Result
    from lab.spec.scenario import Scenario

__all__ = [
    "Cluster", "LabError", "OutputError", "Result", "Scenario", "__version__", "distributed", "equal", "learn", "note",
    "read_output", "run_suite",
]  # fmt: skip

_HOMES = {
    "Cluster": "lab.cluster",
    "LabError": "lab.errors",
    "Result": "lab.record.result",
    "Scenario": "lab.spec.scenario",
    "note": "lab.node.rank.note",
}


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        import sys
        from importlib import import_module

        # A worker has what its agent imported.
        return getattr(sys.modules.get(home.replace("lab.", "labnode.", 1)) or import_module(home), name)
    if name in __all__:
        from lab.feature import find_entry

        if (export := find_entry("exports", name)) is not None:
            return export
    raise AttributeError(f"module 'lab' has no attribute {name!r}")
