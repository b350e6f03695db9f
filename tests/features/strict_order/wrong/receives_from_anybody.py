"""Rank 0 takes results in the order in which they come."""
# kind: rejected
# rank: 0
# says: recvAnysource

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
result = torch.full((2,), float(dist.get_rank()))
if dist.get_rank() == 0:
    for _ in range(dist.get_world_size() - 1):
        dist.recv(result)  # cause
else:
    dist.send(result, 0)
