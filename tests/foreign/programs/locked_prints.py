"""A test of a machine's network: every rank prints under a lock on its own source, so that lines do not mix."""

import fcntl
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def printflock(*words):
    with open(__file__) as source:
        fcntl.flock(source, fcntl.LOCK_EX)
        try:
            print(*words, flush=True)
        finally:
            fcntl.flock(source, fcntl.LOCK_UN)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.manual_seed(local_rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    try:
        dist.all_reduce(torch.ones(1), op=dist.ReduceOp.SUM)
        dist.barrier()
        dist.monitored_barrier(timeout=timedelta(seconds=30))
        printflock(f"rank {rank} of {world_size} is OK")
        for exponent in range(4, 12):
            tensor = torch.rand(2**exponent)
            for _ in range(3):
                dist.all_reduce(tensor)
            gathered = [torch.empty_like(tensor) for _ in range(world_size)]
            dist.all_gather(gathered, tensor)
            printflock(f"rank {rank}: {4 * 2**exponent} bytes, same {all(g.equal(tensor) for g in gathered)}")
        if rank == 0:
            printflock(f"pt is OK, {world_size} ranks, {dist.get_backend()}, {dist.is_gloo_available()}")
    except Exception:
        printflock(f"rank {rank} is broken")
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
