"""The receiver has room for more than what comes."""
# nodes: 2
# kind: rejected
# rank: 0 | nobody

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.zeros(3), 1)  # cause
else:
    room = torch.full((8,), -1.0)
    dist.recv(room, 0)
