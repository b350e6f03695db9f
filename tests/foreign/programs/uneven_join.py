"""Ranks with more and with fewer batches than others, under DDP's join, and one that accumulates with no_sync."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(1, 1))
    batches = [torch.tensor([1.0]) for _ in range(5 + rank)]
    seen = 0
    with Join([model]):
        for batch in batches:
            model(batch).sum().backward()
            seen += 1
    print(f"rank {rank} has seen {seen} batches, gradient {model.module.weight.grad.item():.4f}", flush=True)
    dist.barrier()
    model.zero_grad()
    for step in range(4):
        if step % 2 == 0:
            with model.no_sync():
                model(torch.tensor([1.0 + rank])).sum().backward()
        else:
            model(torch.tensor([1.0 + rank])).sum().backward()
            print(f"rank {rank} step {step}: {model.module.weight.grad.item():.4f}", flush=True)
            model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
