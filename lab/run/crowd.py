"""Whether a run of many ranks can be held: by this process, and by the machine that its nodes are on."""

from __future__ import annotations

from lab.engine.protocol import Engine
from lab.node.open_files import allow_open_files
from lab.plan.plan import Plan
from lab.plan.room import NodeCost, files_of_run, refuse_crowd

_THERE = NodeCost(node_bytes=0, shared_bytes=0, node_threads=0)
"""What nodes cost that are up."""


def make_room(plan: Plan, engine: Engine) -> None:
    """Let this process open as many files as the run needs, and refuse more ranks than there is room for.

    Raises:
        ClusterUnfit: there is not; the message says of what, and how many nodes would fit.
    """
    allowed = allow_open_files(files_of_run(plan.nnodes, plan.nproc_per_node))
    refuse_crowd(plan.nnodes, plan.nproc_per_node, engine.machine().room._replace(open_files=allowed), _THERE)
