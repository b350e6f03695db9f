# kind: mismatch
# rank: 1
# says: may have skipped skips_a_sharded_batch.py:\d+
# timeout: 4s
"""One rank skips a batch; its model is sharded with FSDP2, and every second batch reduces the loss."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(Block(8), Block(8), nn.Linear(8, 1))
    for block in model[:2]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(6):
        x = torch.randn(4, 8)
        if step == 3 and rank == 1:
            print("skipping bad batch")
            continue
        loss = model(x).pow(2).mean()  # cause
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 2 == 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
    dist.destroy_process_group()


main()
