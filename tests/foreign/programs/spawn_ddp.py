"""The DDP tutorial: processes of its own, at an address of its own, two demonstrations one after another."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def train_once(model, rank):
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    torch.manual_seed(rank)
    optimizer.zero_grad()
    loss = nn.MSELoss()(model(torch.randn(20, 10)), torch.randn(20, 5))
    loss.backward()
    optimizer.step()
    return loss.item()


def demo_basic(rank, world_size, port):
    print(f"Running basic DDP example on rank {rank}.\n", end="", flush=True)
    setup(rank, world_size, port)
    torch.manual_seed(7)
    loss = train_once(DDP(ToyModel()), rank)
    cleanup()
    print(f"Finished running basic DDP example on rank {rank}: {loss:.4f}.\n", end="", flush=True)


def demo_checkpoint(rank, world_size, port):
    print(f"Running DDP checkpoint example on rank {rank}.\n", end="", flush=True)
    setup(rank, world_size, port)
    torch.manual_seed(8 + rank)  # they differ until DDP has broadcast those of rank 0
    model = DDP(ToyModel())
    path = os.path.join(tempfile.gettempdir(), f"model-{port}.checkpoint")
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path, weights_only=True))
    train_once(model, rank)
    total = sum(parameter.sum() for parameter in model.parameters()).detach()
    sums = [torch.zeros(()) for _ in range(world_size)]
    dist.all_gather(sums, total)
    dist.barrier()
    if rank == 0:
        os.remove(path)
    cleanup()
    print(
        f"Finished running DDP checkpoint example on rank {rank}: {torch.stack(sums).std() == 0}.\n", end="", flush=True
    )


def run_demo(demo, world_size, port):
    mp.spawn(demo, args=(world_size, port), nprocs=world_size, join=True)


if __name__ == "__main__":
    for demo in (demo_basic, demo_checkpoint):
        run_demo(demo, 2, sys.argv[1])
