# kind: failed
# rank: 2
# says: size mismatch
"""One rank's checkpoint is that of a smaller model."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 2)
saved = torch.nn.Linear(4, 3 if rank == 2 else 2).state_dict()
dist.barrier()
model.load_state_dict(saved)  # cause
for parameter in model.parameters():
    dist.all_reduce(parameter.data)
