# kind: splits
# rank: 1 | nobody
# innocent: 0 2
# says: rank 0 sends 2 rows to rank 1, but rank 1 has space for 1
"""A rank does not use the numbers of tokens that it was told, and expects one from each."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
give = [1, 2, 1] if rank == 0 else [1, 1, 1]
take = torch.empty(3, dtype=torch.int64)
dist.all_to_all_single(take, torch.tensor(give))
take = [1, 1, 1] if rank == 1 else take.tolist()
dist.all_to_all_single(torch.empty(sum(take)), torch.ones(sum(give)), take, give)  # cause
dist.barrier()
