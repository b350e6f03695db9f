"""Messages are received in another order than they were sent, by their tags."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
left, right = (rank - 1) % size, (rank + 1) % size
sent = [dist.isend(torch.full((4,), float(tag)), dst=right, tag=tag) for tag in range(4)]
taken = [torch.empty(4) for _ in range(4)]
received = [dist.irecv(taken[tag], src=left, tag=tag) for tag in (2, 0, 3, 1)]
for handle in [*received, *sent]:
    handle.wait()
dist.barrier()
