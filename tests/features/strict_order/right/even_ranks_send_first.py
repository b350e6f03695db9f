"""An exchange by blocking calls: even ranks send first."""
# nodes: 2

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine, yours = torch.full((4,), float(rank)), torch.empty(4)
for _ in range(3):
    if rank % 2 == 0:
        dist.send(mine, 1 - rank)
        dist.recv(yours, 1 - rank)
    else:
        dist.recv(yours, 1 - rank)
        dist.send(mine, 1 - rank)
assert yours[0] == 1 - rank
