# nodes: 4
"""A grid of two by two: groups of rows and columns, each named alike."""

import torch
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
for _ in range(3):
    for name in ("data", "model"):
        torch.distributed.all_reduce(torch.ones(4), group=mesh.get_group(name))
