"""A barrier that only gloo has."""
# kind: rejected
# rank: 0 | 1 | 2 | 0 1 | 0 2 | 1 2 | 0 1 2
# says: GLOO
# innocent: none

import torch.distributed as dist

dist.init_process_group("gloo")
dist.monitored_barrier()  # cause
