"""Makes calls and training steps that a mutant can change; line numbers do not matter, names of calls do."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lab import note

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
again = dist.new_group([0, 1, 2])
one = torch.tensor([float(rank), 1.0])
dist.all_reduce(one)
dist.all_reduce(one)
note("sum", one.tolist())
two = torch.tensor([rank, rank])
dist.broadcast(two, src=1)
note("broadcast", two.tolist())
work = dist.all_reduce(one, async_op=True)
work.wait()
if rank < 2:
    three = torch.tensor([float(rank)])
    (dist.send if rank == 0 else dist.recv)(three, 1 - rank, tag=5)
rows = torch.full((6,), float(rank))
dist.all_to_all_single(torch.zeros(6), rows, [2, 2, 2], [2, 2, 2])
data = TensorDataset(torch.arange(12.0)[:, None])
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = []
for (batch,) in DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False)):
    seen += batch.flatten().tolist()
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
note("seen", seen)
note("weight", model.module.weight.item())
dist.barrier()
dist.destroy_process_group()
