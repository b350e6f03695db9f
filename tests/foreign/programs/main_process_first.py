"""A trainer that lets one rank prepare what the others then read, and sends objects around."""

import contextlib
import os

import torch
import torch.distributed as dist


@contextlib.contextmanager
def main_process_first(local_rank):
    try:
        if local_rank != 0:
            dist.barrier()
        yield
    finally:
        if local_rank == 0:
            dist.barrier()


def main():
    local_rank = int(os.environ.get("LOCAL_RANK", -1))
    if local_rank == -1:
        raise SystemExit("use a launcher")
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    with main_process_first(rank):
        print(f"rank {rank} prepares", flush=True)
    settings = [{"lr": 0.1, "layers": [1, 2, 3]} if rank == 0 else None, "plan" if rank == 0 else None]
    dist.broadcast_object_list(settings, src=0)
    print(f"rank {rank} has {settings}", flush=True)
    mine = [None]
    dist.scatter_object_list(mine, [f"part {i}" for i in range(world_size)] if rank == 0 else None, src=0)
    metrics = {"rank": rank, "loss": torch.tensor(float(rank)), "part": mine[0]}
    collected = [None] * world_size if rank == world_size - 1 else None
    dist.gather_object(metrics, collected, dst=world_size - 1)
    if collected:
        print(f"collected {[(one['rank'], one['loss'].item(), one['part']) for one in collected]}", flush=True)
    evens = dist.new_group([r for r in range(world_size) if r % 2 == 0])
    value = torch.tensor([rank])
    if rank % 2 == 0:
        dist.all_reduce(value, group=evens)
    print(f"rank {rank} of evens {dist.get_rank(evens)}: {value.item()}", flush=True)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {rank}", "yes")
    store.wait([f"done {r}" for r in range(world_size)])
    print(f"rank {rank} counts {store.add('count', 1) <= world_size}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
