"""What torch.compile makes of a model, a training step and a loss: how many graphs, and what came out."""

import torch
import torch._dynamo as dynamo
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lab import note

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
compiled = torch.compile(model, backend="eager")
loss_of, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1)


class OwnLoss(nn.modules.loss._Loss):
    def forward(self, x, y):
        dynamo.graph_break()
        return (x - y).sum()


def step():
    optimizer.zero_grad()
    loss = loss_of(compiled(torch.ones(3, 4)), torch.zeros(3, 2))
    loss.backward()
    optimizer.step()
    return loss.detach()


def tell(name, *values):
    note(name, {"values": [value.item() for value in values], "graphs": dict(dynamo.utils.counters["stats"])})
    dynamo.reset()
    dynamo.utils.counters.clear()


x, own_loss = torch.ones(2), OwnLoss()
tell("loop", *[step() for _ in range(4)])
tell("step", *[torch.compile(step, backend="eager")() for _ in range(3)])
tell("loss", torch.compile(lambda: loss_of(x, 3 * x), backend="eager", fullgraph=True)())
tell("own loss", torch.compile(lambda: own_loss(x, 3 * x) + 1, backend="eager")())
dist.barrier()
dist.destroy_process_group()
