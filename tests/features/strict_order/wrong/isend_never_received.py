"""Rank 0 sends once more than rank 1 receives, and does not look back."""
# nodes: 2
# kind: unmatched | left_early | never_entered
# rank: 1 | nobody
# innocent: none

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.zeros(4)
if dist.get_rank() == 0:
    kept = [dist.isend(value, 1) for _ in range(3)]  # cause
    kept[0].wait()
else:
    for _ in range(2):
        dist.recv(value, 0)
dist.barrier()
