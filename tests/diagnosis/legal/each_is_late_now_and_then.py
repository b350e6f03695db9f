"""Now and then a batch is long, on another rank each time: all wait for it, and nobody is slow."""

import random
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
draw = random.Random(11)
turns = [(rank_of, draw.uniform(0.04, 0.09)) for rank_of in (0, 1, 2, 2, 1, 0, 1, 0, 2, 0, 2, 1)]
dist.barrier()
for batch in range(96):
    who, seconds = turns[batch // 8]
    if batch % 8 == 5 and who == rank:
        time.sleep(seconds)
    dist.all_reduce(torch.ones(256))
dist.barrier()
