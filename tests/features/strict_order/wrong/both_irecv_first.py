"""An exchange between two ranks in which both ask for the data of the other first."""
# nodes: 2
# kind: deadlock

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine, yours = torch.full((4,), float(rank)), torch.empty(4)
received = dist.irecv(yours, 1 - rank)  # cause
sent = dist.isend(mine, 1 - rank)
received.wait()
sent.wait()
