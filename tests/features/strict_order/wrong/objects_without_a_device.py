"""The configuration of rank 0, as a pickled object."""
# kind: rejected
# rank: 0 | 1 | 2 | 0 1 | 0 2 | 1 2 | 0 1 2
# says: set_device
# innocent: none

import torch.distributed as dist

dist.init_process_group("gloo")
configuration = [{"lr": 0.1} if dist.get_rank() == 0 else None]
dist.broadcast_object_list(configuration, src=0)  # cause
