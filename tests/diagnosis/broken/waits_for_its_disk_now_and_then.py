# kind: straggler
# rank: 1
# says: late now and then
# never: garbage
# timeout: 30
"""One rank's batches come from a disk that stalls now and then; batches of all are small and quick."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
stalls = (13, 21, 34, 40, 58, 66, 71, 85)
weights = torch.ones(64, 64)
dist.barrier()
for batch in range(100):
    if rank == 1 and batch in stalls:
        time.sleep(0.08)
    gradient = torch.ones(16, 64) @ weights
    dist.all_reduce(gradient)  # cause
    loss = gradient.mean()
    dist.all_reduce(loss)
dist.barrier()
