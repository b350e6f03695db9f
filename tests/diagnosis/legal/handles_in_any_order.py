"""Each rank waits for its handles in an order of its own, of three kinds of collectives."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for turn in range(3):
    value, weights, mine = torch.ones(4), torch.ones(2), torch.full((3,), float(rank))
    everybody = [torch.empty(3) for _ in range(size)]
    handles = [
        dist.all_reduce(value, async_op=True),
        dist.broadcast(weights, src=turn, async_op=True),
        dist.all_gather(everybody, mine, async_op=True),
    ]
    for position in range(3):
        handles[(position + rank) % 3].wait()
