# kind: slipped
# rank: 3
# nodes: 4
"""A rank leaves out the reduction over its row once; the columns then wait for other rows than their own."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
for step in range(4):
    if not (rank == 3 and step == 2):
        dist.all_reduce(torch.ones(4), group=mesh.get_group("tensor"))  # also
    dist.all_reduce(torch.ones(6), group=mesh.get_group("data"))  # cause
dist.barrier()
