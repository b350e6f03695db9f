"""Two replicas of a stage: rank 0 reduces in the background while it sends what rank 1 waits for, through rank 2."""
# kind: deadlock | unmatched | elsewhere
# rank: nobody

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
replicas = dist.new_group([0, 1])
gradient, activation = torch.ones(8), torch.zeros(4)
if rank == 0:
    handle = dist.all_reduce(gradient, group=replicas, async_op=True)  # also
    dist.send(activation, 2)
    handle.wait()
elif rank == 1:
    dist.recv(activation, 2)  # cause
    dist.all_reduce(gradient, group=replicas)
else:
    dist.recv(activation, 0)  # cause
    dist.send(activation, 1)
