# kind: failed
# rank: 1
# says: size
"""One rank has made its buffer for the number of ranks of yesterday."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mine = torch.full((4,), float(rank))
everybody = torch.empty(4 * (size - 1 if rank == 1 else size))
dist.all_gather_into_tensor(everybody, mine)  # cause
dist.barrier()
