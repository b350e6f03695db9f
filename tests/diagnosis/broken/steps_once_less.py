# kind: diverged
# rank: 1
"""One rank leaves out a step of its optimizer that is no power of two, so that no norms are compared after it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(8):
        torch.manual_seed(step * 10 + rank)
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        skip = rank == 1 and step == 4
        if not skip:
            optimizer.step()  # cause
    dist.barrier()
    dist.destroy_process_group()


main()
