# kind: groups | failed | mismatch | shape
# rank: 3
# nodes: 4
"""One rank of four has another idea of the grid."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank = dist.get_rank()
shape = (4, 1) if rank == 3 else (2, 2)
mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "model"))  # cause
for name in ("data", "model"):
    dist.all_reduce(torch.ones(4), group=mesh.get_group(name))  # cause
