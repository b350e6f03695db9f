# kind: failed
# rank: 2
# says: shard-2.pt
"""One of the shards was not written."""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = tempfile.mkdtemp()
if rank != 2:
    torch.save(torch.ones(4), os.path.join(folder, f"shard-{rank}.pt"))
shard = torch.load(os.path.join(folder, f"shard-{rank}.pt"))  # cause
dist.all_reduce(shard)
