"""What only engines of several hosts can be asked for."""

from __future__ import annotations

from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape


def refuse_for_one_host(shape: Shape, engine: str) -> None:
    """Refuse what an engine of one host, which has no scheduler, cannot do.

    Raises:
        ClusterUnfit: the shape names hosts, or tells a scheduler something.
    """
    if shape.hosts:
        raise ClusterUnfit(
            f"the {engine} engine has one host, so nodes cannot be spread over {', '.join(shape.hosts)}",
            "leave --hosts out, or use --engine swarm or --engine slurm",
        )
    if shape.allocation:
        name, value = next(iter(shape.allocation.items()))
        raise ClusterUnfit(
            f"the {engine} engine has no scheduler that could be told {name}={value}",
            "leave --allocation out, or use --engine slurm",
        )
