"""DTensor: its collectives are asynchronous and functional."""
# nodes: 2

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(16.0).reshape(4, 4)
sharded = distribute_tensor(whole, mesh, [Shard(0)])
assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
assert torch.equal((sharded + sharded).sum().full_tensor(), 2 * whole.sum())
dist.destroy_process_group()
