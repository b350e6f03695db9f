"""A pool of threads waits for the handles; the tensors are changed when they say so."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
with ThreadPoolExecutor(2) as pool:
    for _ in range(4):
        parts = [torch.full((64,), float(rank + n)) for n in range(3)]
        handles = [dist.all_reduce(part, async_op=True) for part in parts]
        waiting = [pool.submit(handle.wait) for handle in handles]
        for part, done in zip(parts, waiting, strict=True):
            done.result()
            part.zero_()
dist.barrier()
