"""all_reduces of growing size, each alone, and then a few steps of DDP training: what the network makes of both."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

REPEATS = {256: 25, 4096: 25, 32768: 11, 131072: 7, 524288: 5}  # by elements of 4 bytes: small ones cost nothing
STEPS = 6
WIDTH = 384  # of a layer: 0.6 MB of gradients


def measure():
    """Each size several times, so that a median tells the time of one that was not disturbed."""
    for size, repeats in REPEATS.items():
        tensor = torch.ones(size)
        for _ in range(repeats):
            dist.barrier()
            dist.all_reduce(tensor)


def train():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        torch.manual_seed(step * dist.get_world_size() + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(256, WIDTH)).square().mean().backward()
        optimizer.step()
    return sum(parameter.detach().double().sum() for parameter in model.parameters()).item()


def main():
    dist.init_process_group("gloo")
    measure()
    weights = torch.tensor([train()])
    everybodys = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, weights)
    note("equal_weights", all(torch.equal(one, weights) for one in everybodys))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
