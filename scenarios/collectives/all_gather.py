"""All-gather: every rank ends with the tensors of all ranks, in the order of ranks.

The values are larger than 2**53, so they would not survive a detour over floating point.
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

    mine = torch.tensor([2**60 + rank, -rank], dtype=torch.int64)
    everybody = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(everybody, mine)

    for source, values in enumerate(everybody):
        print(f"rank {rank} has {values.tolist()} from rank{source}", flush=True)
    note("everybody", everybody)
    note("dtype", everybody[0].dtype)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
