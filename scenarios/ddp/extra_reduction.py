"""A helper reduces the gradients, and DDP has already done so.

The loss falls, the replicas stay the same, and no call fails. Only a comparison with one process shows it:
`lab equal extra_reduction.py --ranks 1,2`.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from toy import ToyModel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, STEPS = 12, 3  # rows of all ranks in a step


def gradient_of(model):
    """All gradients as one vector."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    random = torch.Generator().manual_seed(2)
    model = DistributedDataParallel(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ratio = 0.0

    for step in range(STEPS):
        inputs, targets = torch.randn(ROWS, 10, generator=random), torch.randn(ROWS, 5, generator=random)
        mine = slice(rank * ROWS // world_size, (rank + 1) * ROWS // world_size)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step == 0:
            alone = ToyModel()  # the same weights, and all rows
            nn.functional.mse_loss(alone(inputs), targets).backward()
            ratio = (gradient_of(model).norm() / gradient_of(alone).norm()).item()
        optimizer.step()

    print(f"rank {rank}: the gradient is {ratio:.4f} times that of one process", flush=True)
    note("ratio", ratio)
    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
