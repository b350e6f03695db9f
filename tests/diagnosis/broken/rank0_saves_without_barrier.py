# kind: mismatch
# rank: 0
"""All but rank 0 wait until the checkpoint is written; rank 0 goes straight on."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(1)
    dist.all_reduce(loss)  # cause
    if step == 1:
        if rank == 0:
            torch.save({"step": step}, "checkpoint.pt")
        else:
            dist.barrier()
