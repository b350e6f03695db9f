# kind: deadlock
# rank: 1
"""A pipeline by hand: the middle stage forgets to send the gradient back in its last microbatch."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, MICRO = 8, 4


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    for _ in range(3):
        inputs, outputs = [], []
        for _ in range(MICRO):
            x = torch.randn(2, WIDTH)
            if rank > 0:
                dist.recv(x, src=rank - 1)  # cause
            x.requires_grad_()
            y = stage(x)
            if rank < world - 1:
                dist.send(y.detach(), dst=rank + 1)
            inputs.append(x)
            outputs.append(y)
        for m in range(MICRO):
            if rank < world - 1:
                grad = torch.empty(2, WIDTH)
                dist.recv(grad, src=rank + 1)
                outputs[m].backward(grad)
            else:
                outputs[m].pow(2).mean().backward()
            if rank > 0 and not (rank == 1 and m == MICRO - 1):
                dist.send(inputs[m].grad, dst=rank - 1)  # cause
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
