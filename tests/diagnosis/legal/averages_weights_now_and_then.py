"""Local SGD: every rank trains alone, and the weights are averaged every other step."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
torch.manual_seed(rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 8):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).pow(2).mean().backward()
    optimizer.step()
    if step % 2 == 0:
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= size
