"""isend and irecv whose buffers are filled again once the handles are waited for, in another order."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
out, into = torch.zeros(300), torch.zeros(300)
for step in range(5):
    out.fill_(rank + step * 10.0)
    ops = [dist.P2POp(dist.isend, out, (rank + 1) % world), dist.P2POp(dist.irecv, into, (rank - 1) % world)]
    works = dist.batch_isend_irecv(ops)
    for work in reversed(works):
        work.wait()
    out.add_(into)
    assert into[0].item() == (rank - 1) % world + step * 10.0
    into.zero_()
    handle = dist.isend(out, (rank + 1) % world)
    got = dist.irecv(into, (rank - 1) % world)
    got.wait()
    handle.wait()
