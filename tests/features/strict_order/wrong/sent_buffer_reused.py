"""A buffer is filled with the next batch while the last one may still be on its way."""
# nodes: 2
# kind: rejected
# rank: 0
# says: undefined behavior

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
batch = torch.zeros(4)
if dist.get_rank() == 0:
    handles = []
    for number in range(2):
        batch.fill_(number)
        handles.append(dist.isend(batch, 1))  # cause
    for handle in handles:
        handle.wait()
else:
    for _ in range(2):
        dist.recv(batch, 0)
