"""Data parallel training by hand, of three steps; `apart`: rank 1 adds something to its weights before the last."""

import sys

import torch
import torch.distributed as dist


def train(apart: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((4, 3), 1.0 + dist.get_rank())).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        if apart and step == 2 and dist.get_rank() == 1:
            with torch.no_grad():
                model.bias += 1
        optimizer.step()
    dist.destroy_process_group()


dist.init_process_group("gloo")
train(sys.argv[1] == "apart")
