"""What is to be done with a sum is given to its future."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
futures = []
for turn in range(4):
    value = torch.full((32,), float(rank + turn))
    future = dist.all_reduce(value, async_op=True).get_future()
    futures.append(future.then(lambda done: done.value()[0].div_(size)))
for future in futures:
    future.wait()
dist.barrier()
