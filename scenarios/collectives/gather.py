"""Gather: one rank collects a tensor from every rank, in the order of ranks; the others get nothing.

The opposite of scatter. Only the destination allocates the list to gather into.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    mine = torch.tensor([rank, rank * rank])
    print(f"rank {rank} gives {mine}", flush=True)

    collected = [torch.empty_like(mine) for _ in range(world_size)] if rank == 0 else None
    dist.gather(mine, gather_list=collected, dst=0)

    print(f"rank {rank} has collected {collected}", flush=True)
    note("collected", collected)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
