"""An uneven last batch with Join."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
batches = [(torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)) for _ in range(3)]
batches.append((torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)))
own = [(x[rank::world_size], y[rank::world_size]) for x, y in batches[:3]]
own += [batches[3]] if rank == 0 else []  # the last batch is for one rank only
with model.join(divide_by_initial_world_size=False):
    for inputs, targets in own:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

dist.destroy_process_group()
