# nodes: 4
# kind: deadlock
# rank: 2
"""A mesh of 2 x 2: one rank broadcasts in the group of its tensor parallel peers, and not in that of its replicas."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def share(value: torch.Tensor, name: str) -> None:
    dist.broadcast(value, group=mesh.get_group(name), group_src=0)  # cause


weights = torch.full((8,), float(dist.get_rank()))
share(weights, "dp" if dist.get_rank() != 2 else "tp")
dist.barrier()
