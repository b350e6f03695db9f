# kind: mismatch | shape | counts | never_entered | slipped | failed
# rank: 1
"""One rank leaves out the inner wrapping of its sharded model: it gathers other parameters."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6))
if rank != 1:
    fully_shard(model[0])  # cause
fully_shard(model)  # cause
for _ in range(2):
    loss = model(torch.ones(2, 6)).sum()  # cause
    loss.backward()  # cause
