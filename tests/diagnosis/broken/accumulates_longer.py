# kind: left_early | slipped | counts
# rank: 2
"""Gradients are averaged by hand after so many micro-batches; one rank waits for twice as many."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
every = 4 if rank == 2 else 2
for batch in range(1, 9):
    model(torch.randn(2, 4)).pow(2).mean().backward()
    if batch % every == 0:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # cause
            parameter.grad /= size
        optimizer.step()
        optimizer.zero_grad()
