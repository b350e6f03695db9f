"""What torch 2.14 brought: hooks around calls, a check for NaN, and a group whose ranks can change."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from lab import note

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def counts_calls():
    dist.init_process_group("gloo")
    seen, after = [], []
    dist.group.WORLD.register_pre_hook(7, lambda call: seen.append(call.name.name))
    dist.group.WORLD.register_post_hook(7, lambda call: after.append(call.name.name))
    tensor, parts = torch.ones(4), [torch.ones(4) for _ in range(size)]
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.broadcast(tensor, 0)
    dist.reduce(tensor, 0)
    dist.all_gather(parts, tensor)
    dist.all_gather_into_tensor(torch.ones(4 * size), tensor)
    dist.scatter(tensor, parts if rank == 0 else None)
    dist.gather(tensor, parts if rank == 0 else None)
    dist.reduce_scatter_tensor(torch.ones(1), torch.ones(size))
    dist.all_to_all_single(torch.ones(size), torch.ones(size))
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
    dist.barrier()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.ones(2, 4)).sum().backward()
    del model
    dist.group.WORLD.unregister_pre_hook(7)
    dist.barrier()
    note("seen", seen)
    note("after", len(after) - len(seen))
    dist.destroy_process_group()


def counts_nothing():
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()


def sends_nan():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.tensor([1.0, float("nan")]))


def turns_the_ranks_round():
    dist.init_process_group("gloo", enable_reconfigure=True)
    store = c10d._get_default_store()
    store.set(f"handle/{rank}", c10d._get_reconfigure_handle())
    handles = [store.get(f"handle/{one}").decode() for one in range(size)]
    c10d._reconfigure(uuid=1, handles=handles[::-1]).wait()
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    note("rank", dist.group.WORLD.rank())
    note("sum", total.item())
    note("supported", c10d._supports_reconfigure())


globals()[sys.argv[1]]()
