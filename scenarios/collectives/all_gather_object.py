"""Every rank gets an object of every rank, whatever its size: lists of different lengths need no padding here.

Handy for results and names; for tensors in a training loop the pickling is too slow.
"""

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    mine = {"rank": rank, "found": list(range(rank))}  # rank 0 found nothing, rank 1 one thing, ...
    everybody = [None] * world_size
    dist.all_gather_object(everybody, mine)

    print(f"rank {rank} has {everybody}", flush=True)
    note("ranks", [item["rank"] for item in everybody])
    note("found", [item["found"] for item in everybody])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
