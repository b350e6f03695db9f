"""Starts itself once more for every other rank, with an environment that says who each is, as Lightning's trainer does.

Under a launcher that has started all ranks already it starts nothing.
"""

import os
import signal
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PROCESSES = 2


class Launcher:
    def __init__(self, port):
        self.port = port
        self.processes = []

    def __enter__(self):
        for local_rank in range(1, PROCESSES):
            environment = os.environ.copy()
            environment.update(self.variables(local_rank), IS_CHILD="1")
            command = [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]
            self.processes.append(subprocess.Popen(command, env=environment, cwd=os.getcwd()))
        os.environ.update(self.variables(0))
        return self

    def variables(self, local_rank):
        return {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self.port,
            "NODE_RANK": "0",
            "LOCAL_RANK": str(local_rank),
            "RANK": str(local_rank),
            "WORLD_SIZE": str(PROCESSES),
        }

    def __exit__(self, *_):
        codes = [process.wait() for process in self.processes]
        print(f"children ended with {codes}\n", end="", flush=True)


def fit():
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)  # as where jobs are queued again
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{world_size}\n", end="", flush=True)
    torch.manual_seed(42)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    data = torch.randn(12, 8, generator=torch.Generator().manual_seed(rank))
    for epoch in range(2):
        for batch in data.split(4):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(f"rank {rank} epoch {epoch}: {mean.item() / world_size:.4f}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    signal.signal(signal.SIGUSR1, previous)


if __name__ == "__main__":
    alone = len(sys.argv) > 1
    if alone and "IS_CHILD" not in os.environ:
        with Launcher(sys.argv[1]):
            fit()
    else:
        fit()
