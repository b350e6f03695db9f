# kind: failed
# rank: 2
# says: and 0\.\d+ on rank 2; rank \d then raised RuntimeError
"""One rank begins with other weights; all of them compare theirs in the end, and raise."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(2 if rank == 2 else 0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    torch.manual_seed(step * size + rank)
    model(torch.randn(8, 4)).pow(2).mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size
    optimizer.step()
    optimizer.zero_grad()
total = torch.stack([parameter.detach().sum() for parameter in model.parameters()]).sum()
least, most = total.clone(), total.clone()
dist.all_reduce(least, op=dist.ReduceOp.MIN)
dist.all_reduce(most, op=dist.ReduceOp.MAX)
if least != most:
    raise RuntimeError(f"parameters differ: {least.item()} != {most.item()}")  # cause
