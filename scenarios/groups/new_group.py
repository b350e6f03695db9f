"""Subgroups: the even and the odd ranks sum among themselves.

Every rank must call new_group for every group, in the same order, also for those that it does not belong to.
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

    evens = dist.new_group(list(range(0, world_size, 2)))
    odds = dist.new_group(list(range(1, world_size, 2))) if world_size > 1 else None
    mine, name = (evens, "even") if rank % 2 == 0 else (odds, "odd")

    total = torch.tensor([rank])
    dist.all_reduce(total, group=mine)

    place = f"{dist.get_rank(mine)} of {dist.get_world_size(mine)}"
    print(f"rank {rank} is rank {place} among the {name} ones, whose sum is {total.item()}", flush=True)
    note("sum", total)
    note("rank_in_group", dist.get_rank(mine))
    note("size_of_group", dist.get_world_size(mine))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
