"""DDP with several buckets, a hook of its own, no_sync, and a metric."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
layers = [torch.nn.Linear(64, 64) for _ in range(4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.02)
torch.manual_seed(dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    if step == 1:
        with model.no_sync():
            model(torch.randn(8, 64)).square().mean().backward()
    loss = model(torch.randn(8, 64)).square().mean()
    loss.backward()
    optimizer.step()
    metric = loss.detach().clone()
    dist.all_reduce(metric, op=dist.ReduceOp.MAX)
dist.barrier()
dist.destroy_process_group()
