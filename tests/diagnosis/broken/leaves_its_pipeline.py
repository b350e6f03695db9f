# kind: left_early
# rank: 1
# says: rank 1 .*exited early.* after send 1 → 0
"""The middle stage of a pipeline returns three microbatches early; both neighbors still need it."""

import torch
import torch.distributed as dist
import torch.nn as nn


def stage(rank, world, layer):
    opt = torch.optim.SGD(layer.parameters(), lr=0.1)
    for micro in range(6):
        if rank == 1 and micro == 3:
            return "done"  # cause
        x = torch.randn(2, 8)
        if rank > 0:
            dist.recv(x, src=rank - 1)
            x.requires_grad_()
        y = layer(x)
        if rank < world - 1:
            dist.send(y.detach(), dst=rank + 1)
            grad = torch.empty_like(y)
            dist.recv(grad, src=rank + 1)
            y.backward(grad)
        else:
            y.sum().backward()
        if rank > 0:
            dist.send(x.grad, dst=rank - 1)  # cause
        opt.step()
    return "all"


dist.init_process_group("gloo")
print(stage(dist.get_rank(), dist.get_world_size(), nn.Linear(8, 8)))
dist.destroy_process_group()
