# kind: failed
# rank: 0
# says: learning rate
"""Only rank 0 reads the configuration, and it does not like it."""

import torch
import torch.distributed as dist


def checked(learning_rate):
    if learning_rate <= 0:
        raise ValueError(f"learning rate {learning_rate} must be positive")  # cause
    return learning_rate


dist.init_process_group("gloo")
rank = dist.get_rank()
rate = torch.tensor([checked(-0.1) if rank == 0 else 0.0])
dist.broadcast(rate, src=0)
