"""A collective in flight while ranks talk through a store."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
value = torch.ones(4)
if rank == 0:
    handle = dist.all_reduce(value, async_op=True)
    store.set("started", "1")
else:
    store.wait(["started"])
    handle = dist.all_reduce(value, async_op=True)
handle.wait()
assert value[0] == 3
