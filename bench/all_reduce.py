"""One all_reduce of 4 KB, and then many of them: rank 0 prints how long each of these took."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1])
count = int(sys.argv[2])
x = torch.ones(1024)
dist.all_reduce(x)
assert x[0] == dist.get_world_size(), x
for _ in range(count // 4):
    dist.all_reduce(x)
began = time.perf_counter()
for _ in range(count):
    dist.all_reduce(x)
if dist.get_rank() == 0 and count:
    print("each", (time.perf_counter() - began) / count)
dist.barrier()
dist.destroy_process_group()
