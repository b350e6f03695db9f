"""All-gather into one tensor: the pieces of all ranks are concatenated, which saves the list and a copy.

FSDP collects its sharded parameters like this. The documentation also allows an output with a new first dimension
(a stack); gloo refuses that, and a view of the flat result does the same. (torch 2.13 calls it all_gather_single too.)
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

    mine = torch.tensor([10 * rank, 10 * rank + 1])
    joined = torch.empty(2 * world_size, dtype=torch.int64)
    dist.all_gather_into_tensor(joined, mine)
    print(f"rank {rank} holds {joined.tolist()}", flush=True)
    note("joined", joined)

    try:
        dist.all_gather_into_tensor(torch.empty(world_size, 2, dtype=torch.int64), mine)
        outcome = "accepted"
    except RuntimeError as error:
        outcome = "refused"
        print(f"rank {rank}: a stack is refused: {str(error).splitlines()[0]}", flush=True)
    note("stack", outcome)
    note("viewed", joined.view(world_size, 2))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
