# kind: straggler
# rank: 2
# says: late now and then
# says: garbage collector ran for
# timeout: 30
"""One rank keeps many objects, and looks through all of them for garbage every so many batches."""

import gc

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
kept = [[number] for number in range(2_000_000)] if rank == 2 else []
gc.disable()
dist.barrier()
model = torch.nn.Linear(64, 64)
for batch in range(80):
    model(torch.ones(16, 64)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # cause
    model.zero_grad()
    if batch % 8 == 5:
        gc.collect()
dist.barrier()
