"""Which GPUs of its node a rank sees. Pure."""

from __future__ import annotations

from lab.plan.cluster import ClusterInfo

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(gpus: int, nproc_per_node: int, local_rank: int) -> range:
    """The GPUs of one rank, where a node has so many: a part as large as that of any other, give or take one.

    Where there are more ranks than GPUs, neighbours share one.
    """
    first, end = (number * gpus // nproc_per_node for number in (local_rank, local_rank + 1))
    return range(first, max(end, first + 1))


def gpu_variables(cluster: ClusterInfo, nproc_per_node: int, rank: int) -> dict[str, str]:
    """What says so to a rank; nothing on a cluster without GPUs, or where the cluster says it itself.

    A container numbers its GPUs from 0; local nodes have those of the machine, one node's after the other's. Slurm says
    which a node has, by numbers that are known there only: its ranks see all of them, as under torchrun.
    """
    gpus = cluster.shape.gpus
    if not gpus or VARIABLE in cluster.shape.env or cluster.gpus == "engine":
        return {}
    node_rank, local_rank = divmod(rank, nproc_per_node)
    before = node_rank * gpus if cluster.gpus == "machine" else 0
    return {VARIABLE: ",".join(str(before + number) for number in visible_gpus(gpus, nproc_per_node, local_rank))}
