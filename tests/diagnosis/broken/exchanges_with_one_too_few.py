# kind: left_early
# rank: 1
"""Everybody gives to everybody; one rank does not take what another one gives it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, others = dist.get_rank(), [other for other in range(dist.get_world_size()) if other != dist.get_rank()]
given = [dist.isend(torch.ones(1 << 20), other) for other in others]
for other in others:
    if (rank, other) != (1, 0):
        dist.recv(torch.zeros(1 << 20), other)  # cause
for work in given:
    work.wait()
