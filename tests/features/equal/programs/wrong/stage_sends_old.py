"""local gradient | local gradient | 2 | Sequential.0.weight |"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
stages = [nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Sequential(nn.Linear(16, 4))]
mine = stages if world_size == 1 else stages[rank : rank + 1]
last = []
optimizer = torch.optim.SGD([one for stage in mine for one in stage.parameters()], lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    optimizer.zero_grad()
    if rank == 0:
        hidden = stages[0](inputs)
    else:
        hidden = torch.empty(12, 16)
        dist.recv(hidden, 0)
        hidden.requires_grad_()
    if rank == world_size - 1:
        nn.functional.mse_loss(stages[1](hidden), targets).backward()
        if world_size > 1:
            last.append(hidden.grad)
            dist.send(last[max(0, len(last) - 2)], 0)
    else:
        dist.send(hidden.detach(), 1)
        gradient = torch.empty(12, 16)
        dist.recv(gradient, 1)
        hidden.backward(gradient)  # wrong
    optimizer.step()

dist.destroy_process_group()
