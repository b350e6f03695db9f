"""Two messages that the receiver tells apart by their tags, in the other order."""
# nodes: 2
# kind: rejected
# rank: 0 | nobody
# says: tag

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    handles = [dist.isend(torch.zeros(3), 1, tag=1)]  # cause
    handles += [dist.isend(torch.ones(3), 1, tag=2)]
    for handle in handles:
        handle.wait()
else:
    loss, norm = torch.empty(3), torch.empty(3)
    handles = [dist.irecv(norm, 0, tag=2), dist.irecv(loss, 0, tag=1)]
    for handle in handles:
        handle.wait()
