# kind: groups
# rank: 0
"""One rank makes a group before a barrier, the others after it."""

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.new_group([0, 1, 2])  # cause
    dist.barrier()
else:
    dist.barrier()
    dist.new_group([0, 1, 2])
