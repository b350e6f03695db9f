# kind: unmatched
# rank: 2 | nobody
# innocent: 0 1
# says: nobody sent it anything more than the 7 messages before
"""A worker skips a batch, and the parameter server waits for as many gradients as there are batches."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, batches = dist.get_rank(), 4
gradient, weights = torch.ones(3), torch.zeros(3)
if rank == 0:
    for _ in range(2 * batches):
        source = dist.recv(gradient)  # cause
        dist.send(weights, source)
else:
    for batch in range(batches):
        if not (rank == 2 and batch == 2):
            dist.send(gradient, 0)
            dist.recv(weights, 0)
dist.barrier()  # also
