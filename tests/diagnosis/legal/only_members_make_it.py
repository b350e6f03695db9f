# nodes: 4
"""Groups with local synchronisation are made by their members alone."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
first = 2 * (rank // 2)
pair = dist.new_group([first, first + 1], use_local_synchronization=True)
value = torch.ones(1)
dist.all_reduce(value, group=pair)
dist.barrier()
