"""`if rank == 0:` around a collective: only one rank comes to the meeting."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.tensor([float(rank)])

if rank == 0:  # the mistake: every rank has to call it, even where only one wants the result
    dist.all_reduce(loss)
    print(f"mean loss: {loss / dist.get_world_size()}")
dist.barrier()
