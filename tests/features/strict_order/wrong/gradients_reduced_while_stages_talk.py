"""Two replicas of two stages: gradients are reduced in the background while the stages exchange the next batch."""
# nodes: 4
# kind: deadlock | unmatched | elsewhere
# rank: nobody

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
gradient, activation = torch.ones(8), torch.zeros(4)
if rank in (0, 3):
    handle = dist.all_reduce(gradient, group=replicas, async_op=True)  # cause
if rank == 0:
    dist.send(activation, 1)
if rank == 1:
    dist.recv(activation, 0)
if rank == 2:
    dist.recv(activation, 3)
if rank == 3:
    dist.send(activation, 2)
if rank in (1, 2):
    handle = dist.all_reduce(gradient, group=replicas, async_op=True)
handle.wait()
