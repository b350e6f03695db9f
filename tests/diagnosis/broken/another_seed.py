# kind: diverged
# rank: nobody | 0 1 2
# innocent: none
"""Gradients are averaged by hand, but the weights were never made the same."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).pow(2).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # cause
        parameter.grad /= size
    optimizer.step()
