"""Collects garbage: long between the first two barriers, quickly and often between the second and the third."""

import gc

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
kept = [[number] for number in range(300_000)]
gc.collect()
del kept
gc.freeze()
dist.barrier()
for _ in range(50):
    gc.collect(0)
dist.barrier()
