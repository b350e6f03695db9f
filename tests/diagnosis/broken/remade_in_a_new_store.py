# kind: groups
# rank: 1
"""One rank makes the default group again, in a part of the store that nobody else looks at."""

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank = dist.get_rank()
store = _get_default_store()
dist.barrier()
if rank == 1:
    dist.destroy_process_group()  # cause
    dist.init_process_group("gloo", store=dist.PrefixStore("new", store), rank=1, world_size=3)
dist.barrier()
