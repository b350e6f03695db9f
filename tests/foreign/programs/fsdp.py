"""A toy of fully sharded data parallel: every rank holds its share of the parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 6))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(3):
        loss = model(torch.randn(4, 12)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    local = [tuple(parameter.to_local().shape) for parameter in model.parameters()]
    print(f"rank {rank} holds {local}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
