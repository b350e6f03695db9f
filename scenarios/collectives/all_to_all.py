"""All-to-all: rank r's i-th tensor goes to rank i, which gets it at position r: a transpose over ranks.

Gloo wants all tensors of a call to have the same shape and refuses any others; all_to_all_single takes uneven ones.
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

    outgoing = [torch.tensor([10 * rank + i]) for i in range(world_size)]
    incoming = [torch.empty(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_to_all(incoming, outgoing)
    print(f"rank {rank} sent {torch.cat(outgoing).tolist()}, got {torch.cat(incoming).tolist()}", flush=True)
    note("incoming", torch.cat(incoming))

    uneven_in = [torch.empty(i + 1) for i in range(world_size)]
    uneven_out = [torch.ones(rank + 1) for _ in range(world_size)]
    try:
        dist.all_to_all(uneven_in, uneven_out)
        outcome = "accepted"
    except RuntimeError as error:
        outcome = "refused"
        print(f"rank {rank}: uneven tensors are refused: {error}", flush=True)
    note("uneven", outcome)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
