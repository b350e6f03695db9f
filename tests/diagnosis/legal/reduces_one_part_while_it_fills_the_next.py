"""Gradients lie in one flat tensor; its parts are reduced while the next ones are still being written."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
flat = torch.zeros(4 * 4096)
for _ in range(3):
    handles = []
    for number, part in enumerate(flat.chunk(4)):
        part.fill_(float(rank + number))
        handles.append(dist.all_reduce(part, async_op=True))
    for handle in handles:
        handle.wait()
    flat /= size
