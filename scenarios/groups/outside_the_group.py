"""A rank outside the group: it must help to make the group, and a collective of it passes it by.

The last rank is left out. Its call of all_reduce returns None with a warning and leaves its tensor alone: no error
and no hang, which is why such a mistake goes unnoticed.
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

    members = list(range(max(1, world_size - 1)))
    group = dist.new_group(members)
    inside = group is not dist.GroupMember.NON_GROUP_MEMBER

    x = torch.tensor([rank])
    work = dist.all_reduce(x, group=group, async_op=True)
    if work is not None:
        work.wait()

    print(f"rank {rank} is {'inside' if inside else 'outside'} {members} and holds {x.item()}", flush=True)
    note("inside", inside)
    note("rank_in_group", dist.get_rank(group))
    note("got_work", work is not None)
    note("x", x)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
