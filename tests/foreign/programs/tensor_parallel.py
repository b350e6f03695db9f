"""A toy of tensor parallel: a feed-forward block, its first layer cut by columns and its second by rows."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


def main():
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    rank = mesh.get_rank()
    torch.manual_seed(0)
    plan = {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}
    model = parallelize_module(ToyModel(), mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=False)
    for step in range(3):
        torch.manual_seed(step)
        loss = model(torch.rand(20, 10)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
