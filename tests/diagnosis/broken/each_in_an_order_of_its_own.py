# kind: shape | failed | mismatch | reduce_op | dtype
# rank: nobody
"""Each rank reduces its metrics in the order in which its own disk lists them."""

import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metrics = {name: torch.ones(size) for size, name in enumerate(["loss", "acc", "f1", "recall"], 1)}
names = sorted(metrics)
random.Random(1 * 10 + rank).shuffle(names)
for name in names:
    dist.all_reduce(metrics[name])  # cause
dist.barrier()
