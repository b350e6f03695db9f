"""The recipe on ZeroRedundancyOptimizer: the same training with and without it, in processes of its own."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def example(rank, world_size, port, use_zero):
    torch.manual_seed(0)
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = nn.Sequential(*[nn.Linear(50, 50) for _ in range(4)])
    ddp_model = DDP(model)
    if use_zero:
        optimizer = ZeroRedundancyOptimizer(ddp_model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    else:
        optimizer = torch.optim.Adam(ddp_model.parameters(), lr=0.01)
    outputs = ddp_model(torch.randn(20, 50))
    nn.MSELoss()(outputs, torch.randn(20, 50)).backward()
    optimizer.step()
    kept = sum(len(state) > 0 for state in (optimizer.optim if use_zero else optimizer).state.values())
    total = sum(parameter.double().sum() for parameter in model.parameters())
    print(f"rank {rank} keeps the state of {kept} parameters; their sum is {total:.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    for use_zero in (True, False):
        print(f"=== Using ZeroRedundancyOptimizer: {use_zero} ===\n", end="", flush=True)
        mp.spawn(example, args=(2, sys.argv[1], use_zero), nprocs=2, join=True)
