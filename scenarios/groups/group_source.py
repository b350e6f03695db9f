"""Who is src=1 in a group? src and dst are always global ranks, not ranks in the group; group_src is one in the group.

The group holds all ranks but rank 0, so every rank in it is one lower than outside. To name rank 0 as its source is
refused.
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

    members = list(range(1, world_size)) or [0]
    group = dist.new_group(members)
    here = dist.get_rank(group)  # -1 outside
    by_global, by_group, outsider = torch.tensor([10 * rank]), torch.tensor([10 * rank]), "not asked"

    if rank in members:
        dist.broadcast(by_global, src=world_size - 1, group=group)
        dist.broadcast(by_group, group_src=0, group=group)
        try:
            dist.broadcast(torch.zeros(1), src=members[0] - 1, group=group)
        except ValueError as error:
            outsider = "refused"
            print(f"rank {rank}: {str(error).partition(' <')[0]} ...", flush=True)

    print(f"rank {rank} is {here} in the group, holds {by_global.item()} and {by_group.item()}", flush=True)
    note("rank_in_group", here)
    note("global_rank", dist.get_global_rank(group, here) if here >= 0 else rank)
    note("by_global", by_global)
    note("by_group", by_group)
    note("outsider", outsider)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
