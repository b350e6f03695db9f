# kind: changed_before_wait
# rank: 0
# says: changed a tensor
# timeout: 8s
"""A stage sends its activations without waiting, and fills the same buffer again."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
buffer = torch.zeros(1 << 16)
pending = []
for micro in range(4):
    if rank == 0:
        buffer.fill_(micro + 1.0)
        pending.append(dist.isend(buffer, dst=1))  # cause
    elif rank == 1:
        dist.recv(buffer, src=0)
        dist.send(buffer.relu(), dst=2)
    else:
        dist.recv(buffer, src=1)
for work in pending:
    work.wait()
dist.barrier()
